// How long a collective between processes of this host takes, by backend; with
// --messages, a message from rank 0 to rank 1 and back, halved.
//
//   bazel run -c opt //tools/bench:collective_benchmark -- --ranks=2
//   bazel run -c opt //tools/bench:collective_benchmark --
//       --collective=all_gather
//   bazel run -c opt //tools/bench:collective_benchmark -- --messages
//
// A row a size: microseconds as rank 0 sees them, the median of rounds in which
// the ways take turns, and the bandwidth (bytes of one tensor over time; of the
// whole one where ranks have parts).
//   in place  shm, tensors of NewGroupBuffer: nothing is copied
//   scatter   all-reduce's, but one rank alone gets the sum, each in its turn:
//             of buckets that lie in one rank's share of an optimizer
//   by part   in place, by a broadcast of, or a reduce to, each rank in turn
//   staged    shm, tensors from elsewhere: through slots of shared memory
//   gloo      sockets on loopback
// (Where a message's tensor lies makes no difference: there are two ways then.)
// Every rank has one thread, and is bound to a core unless --nopin. With
// --hosts ranks believe that they are on so many hosts, and shm is shared
// memory inside of them and Gloo on loopback between them.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/comm/group_buffer.h"
#include "core/comm/partitioned_collectives.h"
#include "core/comm/pending_collective.h"
#include "core/program/exit_code.h"
#include "core/store/store.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/micro/spawned.h"

ABSL_FLAG(int, ranks, 2, "processes");
ABSL_FLAG(bool, pin, true, "bind each rank to a core of its own");
ABSL_FLAG(std::string, collective, "all_reduce",
          "all_reduce, all_gather, reduce_scatter or all_to_all");
ABSL_FLAG(bool, messages, false, "messages of 1 KiB to 16 MiB");
ABSL_FLAG(int, hosts, 1, "on how many hosts ranks believe to be");
ABSL_FLAG(int, rounds, 15, "how often each way takes its turn at a size");

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout(60);

// For the `i`th time, with a tensor that has a part for each rank.
using RunOnce = std::function<absl::Status(Communicator& group,
                                           const at::Tensor& tensor, int i)>;

struct Way {
  const char* name;
  Communicator* group;
  bool shared;  // memory of NewGroupBuffer
  RunOnce run;
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

absl::Status Wait(absl::StatusOr<PendingCollective> started) {
  TANDEM_RETURN_IF_ERROR(started.status());
  return started->Wait();
}

at::Tensor Part(const at::Tensor& tensor, int rank, int size) {
  const int64_t n = tensor.numel() / size;
  return tensor.narrow(0, rank * n, n);
}

at::Tensor OwnPart(Communicator& group, const at::Tensor& tensor) {
  return Part(tensor, group.rank(), group.size());
}

absl::Status SendThereAndBack(Communicator& group, const at::Tensor& tensor,
                              int /*i*/) {
  if (group.rank() > 1) return absl::OkStatus();
  const bool first = group.rank() == 0;
  TANDEM_RETURN_IF_ERROR((first ? Send : Receive)(group, tensor));
  return (first ? Receive : Send)(group, tensor);
}

absl::Status AllReduce(Communicator& group, const at::Tensor& tensor,
                       int /*i*/) {
  return group.AllReduceSum(tensor);
}

absl::Status ReduceInTurn(Communicator& group, const at::Tensor& tensor,
                          int i) {
  return Wait(group.StartReduceSum(tensor, i % group.size()));
}

absl::Status AllGather(Communicator& group, const at::Tensor& tensor,
                       int /*i*/) {
  return Wait(StartAllGather(group, tensor, OwnPart(group, tensor)));
}

absl::Status BroadcastParts(Communicator& group, const at::Tensor& tensor,
                            int /*i*/) {
  for (int rank = 0; rank < group.size(); ++rank) {
    TANDEM_RETURN_IF_ERROR(
        group.Broadcast(Part(tensor, rank, group.size()), rank));
  }
  return absl::OkStatus();
}

absl::Status ReduceScatter(Communicator& group, const at::Tensor& tensor,
                           int /*i*/) {
  return Wait(StartReduceScatterSum(group, tensor, OwnPart(group, tensor)));
}

absl::Status ReduceParts(Communicator& group, const at::Tensor& tensor,
                         int /*i*/) {
  std::vector<PendingCollective> sums;
  for (int rank = 0; rank < group.size(); ++rank) {
    TANDEM_ASSIGN_OR_RETURN(
        sums.emplace_back(),
        group.StartReduceSum(Part(tensor, rank, group.size()), rank));
  }
  return PendingCollective::AllOf(std::move(sums)).Wait();
}

absl::Status AllToAll(Communicator& group, const at::Tensor& tensor,
                      int /*i*/) {
  static auto* const received = new at::Tensor;
  if (!received->defined() || received->numel() != tensor.numel()) {
    *received = at::ones_like(tensor);
  }
  return Wait(StartAllToAll(group, *received, tensor));
}

absl::StatusOr<std::vector<Way>> Ways(Communicator* shm, Communicator* gloo) {
  const std::string& collective = absl::GetFlag(FLAGS_collective);
  if (absl::GetFlag(FLAGS_messages)) {
    return std::vector<Way>{{"shm", shm, false, SendThereAndBack},
                            {"gloo", gloo, false, SendThereAndBack}};
  }
  if (collective == "all_reduce") {
    return std::vector<Way>{{"in place", shm, true, AllReduce},
                            {"scatter", shm, true, ReduceInTurn},
                            {"staged", shm, false, AllReduce},
                            {"gloo", gloo, false, AllReduce}};
  }
  if (collective == "all_gather") {
    return std::vector<Way>{{"in place", shm, true, AllGather},
                            {"by part", shm, true, BroadcastParts},
                            {"staged", shm, false, AllGather},
                            {"gloo", gloo, false, AllGather}};
  }
  if (collective == "reduce_scatter") {
    return std::vector<Way>{{"in place", shm, true, ReduceScatter},
                            {"by part", shm, true, ReduceParts},
                            {"staged", shm, false, ReduceScatter},
                            {"gloo", gloo, false, ReduceScatter}};
  }
  if (collective == "all_to_all") {
    return std::vector<Way>{{"staged", shm, false, AllToAll},
                            {"gloo", gloo, false, AllToAll}};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--collective=", collective,
                   ": known are all_reduce, all_gather, reduce_scatter and "
                   "all_to_all"));
}

// Microseconds for each of `count` collectives, or messages, in a row, after
// one that does not count: caches hold what another way has left there.
absl::StatusOr<double> TimeOne(const Way& way, const at::Tensor& tensor,
                               int count) {
  TANDEM_RETURN_IF_ERROR(way.run(*way.group, tensor, 0));
  TANDEM_RETURN_IF_ERROR(way.group->Barrier());
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) {
    TANDEM_RETURN_IF_ERROR(way.run(*way.group, tensor, i));
  }
  const std::chrono::duration<double, std::micro> took = Clock::now() - start;
  return took.count() / count / (absl::GetFlag(FLAGS_messages) ? 2 : 1);
}

absl::Status MeasureSize(const std::vector<Way>& ways, int64_t bytes) {
  const int count =
      static_cast<int>(std::clamp<int64_t>((4 << 20) / bytes, 1, 200));
  const int64_t parts = ways[0].group->size();
  const int64_t numel = std::max<int64_t>(bytes / 4 / parts, 1) * parts;
  std::vector<at::Tensor> tensors;
  for (const Way& way : ways) {
    TANDEM_ASSIGN_OR_RETURN(at::Tensor tensor, MakeTensor(way, numel));
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
  const int hosts = absl::GetFlag(FLAGS_hosts);
  if (hosts > 1) options.host = absl::StrCat("host", rank * hosts / size);
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> shm,
      Communicator::Create(store, rank, size, "shm", options));
  options.backend = "gloo";
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> gloo,
      Communicator::Create(store, rank, size, "gloo", options));
  const bool messages = absl::GetFlag(FLAGS_messages);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Way> ways,
                          Ways(shm.get(), gloo.get()));
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
