// How long an all-reduce between processes of this host takes, by backend; with
// --messages, a message from rank 0 to rank 1 and back, halved.
//
//   bazel run -c opt //tools/bench:collective_benchmark -- --ranks=2
//   bazel run -c opt //tools/bench:collective_benchmark -- --messages
//
// A row a size: microseconds as rank 0 sees them, the median of rounds in which
// the ways take turns, and the bandwidth (bytes of one tensor over time).
//   in place  shm, tensors of NewGroupBuffer: nothing is copied
//   scatter   the same, but one rank alone gets the sum, each in its turn: of
//             buckets that lie in one rank's share of an optimizer
//   staged    shm, tensors from elsewhere: through slots of shared memory
//   gloo      sockets on loopback
// (Where a message's tensor lies makes no difference: there are two ways then.)
// Every rank has one thread, and is bound to a core unless --nopin.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/comm/group_buffer.h"
#include "core/program/exit_code.h"
#include "core/store/store.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/micro/spawned.h"

ABSL_FLAG(int, ranks, 2, "processes");
ABSL_FLAG(bool, pin, true, "bind each rank to a core of its own");
ABSL_FLAG(bool, messages, false, "messages of 1 KiB to 16 MiB");
ABSL_FLAG(int, rounds, 15, "how often each way takes its turn at a size");

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout(60);

struct Way {
  const char* name;
  Communicator* group;
  bool shared;            // memory of NewGroupBuffer
  bool scatters = false;  // instead of an all-reduce
};

absl::StatusOr<at::Tensor> MakeTensor(const Way& way, int64_t numel) {
  if (way.shared) return NewGroupBuffer(*way.group, numel, at::kFloat);
  return at::ones({numel}, at::kFloat);
}

absl::Status Send(Communicator& group, const at::Tensor& tensor) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective sent,
                          group.StartSend(tensor, 1 - group.rank(), /*tag=*/0));
  return sent.Wait();
}

absl::Status Receive(Communicator& group, const at::Tensor& tensor) {
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective received,
      group.StartReceive(tensor, 1 - group.rank(), /*tag=*/0));
  return received.Wait();
}

absl::Status SendThereAndBack(Communicator& group, const at::Tensor& tensor) {
  if (group.rank() > 1) return absl::OkStatus();
  const bool first = group.rank() == 0;
  TANDEM_RETURN_IF_ERROR((first ? Send : Receive)(group, tensor));
  return (first ? Receive : Send)(group, tensor);
}

absl::Status Reduce(Communicator& group, const at::Tensor& tensor, int root) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective sum,
                          group.StartReduceSum(tensor, root));
  return sum.Wait();
}

// For the `i`th time.
absl::Status RunOnce(const Way& way, const at::Tensor& tensor, int i) {
  if (absl::GetFlag(FLAGS_messages)) {
    return SendThereAndBack(*way.group, tensor);
  }
  return way.scatters ? Reduce(*way.group, tensor, i % way.group->size())
                      : way.group->AllReduceSum(tensor);
}

// Microseconds for each of `count` all-reduces, or messages, in a row.
absl::StatusOr<double> TimeOne(const Way& way, const at::Tensor& tensor,
                               int count) {
  TANDEM_RETURN_IF_ERROR(way.group->Barrier());
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) {
    TANDEM_RETURN_IF_ERROR(RunOnce(way, tensor, i));
  }
  const std::chrono::duration<double, std::micro> took = Clock::now() - start;
  return took.count() / count / (absl::GetFlag(FLAGS_messages) ? 2 : 1);
}

absl::Status MeasureSize(const std::vector<Way>& ways, int64_t bytes) {
  const int count =
      static_cast<int>(std::clamp<int64_t>((4 << 20) / bytes, 1, 200));
  std::vector<at::Tensor> tensors;
  for (const Way& way : ways) {
    TANDEM_ASSIGN_OR_RETURN(at::Tensor tensor, MakeTensor(way, bytes / 4));
    tensors.push_back(tensor);
  }
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<double> medians,
      MediansInTurns(absl::GetFlag(FLAGS_rounds), ways.size(), [&](size_t way) {
        return TimeOne(ways[way], tensors[way], count);
      }));
  if (ways[0].group->rank() != 0) return absl::OkStatus();
  std::printf("%10lld", static_cast<long long>(bytes));
  for (const double median : medians) {
    std::printf("  %10.1f us %6.2f GB/s", median, bytes / median / 1e3);
  }
  std::printf("\n");
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status RunRank(const StorePtr& store, int rank) {
  const int size = absl::GetFlag(FLAGS_ranks);
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (absl::GetFlag(FLAGS_pin)) {
    TANDEM_RETURN_IF_ERROR(BindToCore(rank % cores));
  }
  CommunicatorOptions options;
  options.timeout = kTimeout;
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> shm,
      Communicator::Create(store, rank, size, "shm", options));
  options.backend = "gloo";
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> gloo,
      Communicator::Create(store, rank, size, "gloo", options));
  const bool messages = absl::GetFlag(FLAGS_messages);
  const std::vector<Way> ways =
      messages ? std::vector<Way>{{"shm", shm.get(), false},
                                  {"gloo", gloo.get(), false}}
               : std::vector<Way>{{"in place", shm.get(), true},
                                  {"scatter", shm.get(), true, true},
                                  {"staged", shm.get(), false},
                                  {"gloo", gloo.get(), false}};
  if (rank == 0) {
    std::printf("%10s", "bytes");
    for (const Way& way : ways) std::printf("  %25s", way.name);
    std::printf("\n");
  }
  const int64_t least = messages ? 1 << 10 : 4;
  const int64_t most = messages ? 16 << 20 : 64 << 20;
  for (int64_t bytes = least; bytes <= most; bytes *= 4) {
    TANDEM_RETURN_IF_ERROR(MeasureSize(ways, bytes));
  }
  return absl::OkStatus();
}

absl::Status Run() {
  const int size = absl::GetFlag(FLAGS_ranks);
  CHECK_GE(size, 2) << "--ranks";
  return SpawnRanks(size, RunRank);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tandem::Conclude("collective_benchmark", tandem::Run());
}
