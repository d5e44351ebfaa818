#include "core/comm/host_clocks.h"

#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/backend/backend.h"
#include "core/base/status_macros.h"
#include "core/comm/pending_collective.h"

namespace tandem {
namespace {

using std::chrono::nanoseconds;

constexpr int kRoundTrips = 16;
constexpr int kTag = 0;

std::string Purpose() { return "the hosts' clocks"; }

absl::Status Send(Communicator& world, const at::Tensor& time, int to) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective sent,
                          world.StartSend(time, to, kTag, Purpose));
  return sent.Wait();
}

absl::Status Receive(Communicator& world, const at::Tensor& time, int from) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective received,
                          world.StartReceive(time, from, kTag, Purpose));
  return received.Wait();
}

// The other side of Ask.
absl::Status Answer(Communicator& world, const HostClock& clock, int peer) {
  const at::Tensor time = at::zeros({1}, at::kLong);
  for (int i = 0; i < kRoundTrips; ++i) {
    TANDEM_RETURN_IF_ERROR(Receive(world, time, peer));
    *time.mutable_data_ptr<int64_t>() =
        nanoseconds(clock.now().time_since_epoch()).count();
    TANDEM_RETURN_IF_ERROR(Send(world, time, peer));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClockOffset> Ask(Communicator& world, const HostClock& clock) {
  const at::Tensor time = at::zeros({1}, at::kLong);
  std::vector<ClockSample> samples;
  for (int i = 0; i < kRoundTrips; ++i) {
    ClockSample sample;
    sample.sent = clock.now();
    TANDEM_RETURN_IF_ERROR(Send(world, time, /*to=*/0));
    TANDEM_RETURN_IF_ERROR(Receive(world, time, /*from=*/0));
    sample.received = clock.now();
    sample.answered = ClockSample::Clock::time_point(
        nanoseconds(*time.const_data_ptr<int64_t>()));
    samples.push_back(sample);
  }
  return EstimateClockOffset(samples);
}

std::string Encode(const ClockOffset& offset) {
  return absl::StrCat(offset.offset.count(), " ", offset.uncertainty.count());
}

absl::StatusOr<ClockOffset> Decode(const std::string& text) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(' ', 1));
  int64_t offset = 0;
  int64_t uncertainty = 0;
  if (absl::SimpleAtoi(parts.first, &offset) &&
      absl::SimpleAtoi(parts.second, &uncertainty)) {
    return ClockOffset{nanoseconds(offset), nanoseconds(uncertainty)};
  }
  return absl::InternalError(absl::StrCat("not a clock's offset: ", text));
}

}  // namespace

HostClock HostClock::OfThisHost() {
  // Its name, its boot, and its network.
  const std::vector<std::string> parts = absl::StrSplit(HostIdentity(), ' ');
  const bool knows_boot = parts.size() > 1 && !parts[1].empty();
  return {parts[0], knows_boot ? parts[1] : parts[0],
          [] { return std::chrono::steady_clock::now(); }};
}

absl::StatusOr<std::vector<ClockOffset>> ClockOffsets(Communicator& world,
                                                      const HostClock& clock) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
                          world.AllGatherString(clock.identity, Purpose));
  std::map<std::string, int> first_of;  // ranks by host
  for (int rank = 0; rank < world.size(); ++rank) {
    first_of.emplace(hosts[static_cast<size_t>(rank)], rank);
  }
  ClockOffset mine;
  for (int rank = 1; rank < world.size(); ++rank) {
    if (first_of[hosts[static_cast<size_t>(rank)]] != rank) continue;
    if (world.rank() == 0) {
      TANDEM_RETURN_IF_ERROR(Answer(world, clock, rank));
    }
    if (world.rank() == rank) {
      TANDEM_ASSIGN_OR_RETURN(mine, Ask(world, clock));
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(Encode(mine), Purpose));
  std::vector<ClockOffset> offsets;
  for (const std::string& host : hosts) {
    TANDEM_ASSIGN_OR_RETURN(const ClockOffset offset,
                            Decode(all[static_cast<size_t>(first_of[host])]));
    offsets.push_back(offset);
  }
  return offsets;
}

}  // namespace tandem
