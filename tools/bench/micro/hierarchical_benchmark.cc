// How long an all-reduce takes where ranks are on several hosts: processes of
// this machine, each of which is told which host it is on.
//
//   bazel run //tools/bench:hierarchical_benchmark -- --hosts=2 --ranks=4
//   bazel run //tools/bench:hierarchical_benchmark -- --hosts=2 --ranks=4
//   --gbit=10
//
// A row a size: milliseconds as rank 0 sees them, the median of rounds in which
// the ways take turns.
//   in place   shared memory inside hosts, Gloo between them; tensors of
//              allocateTensor()
//   staged     the same; tensors from elsewhere
//   whole, …   the same without chunks: one phase after the other
//   gloo       Gloo among all ranks, which does not know of hosts; without
//              --gbit
// Between hosts are sockets on loopback, which take processor time that a
// network would not. With --gbit what leaders exchange takes at least as long
// as links of that rate do, during which their processors are free: a rehearsal
// of a network, in which Gloo's own time is still contained.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "core/backend/hierarchical_backend.h"
#include "core/backend/host_layout.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/program/exit_code.h"
#include "core/store/store.h"
#include "tools/bench/micro/spawned.h"

ABSL_FLAG(int, ranks, 4, "processes");
ABSL_FLAG(int, hosts, 2, "how many hosts they are told to be on");
ABSL_FLAG(double, gbit, 0, "rate of a host's link, Gbit/s; 0: loopback's own");
ABSL_FLAG(int64_t, chunk_kib, tandem::HierarchicalBackend::kChunkBytes >> 10,
          "size of a chunk, KiB");
ABSL_FLAG(int, rounds, 9, "how often each way takes its turn at a size");

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

constexpr std::chrono::seconds kTimeout(60);

// Done when `work` is, and not before `time`.
class LateWork : public c10d::Work {
 public:
  LateWork(WorkPtr work, Clock::time_point time)
      : work_(std::move(work)), time_(time) {}
  bool wait(std::chrono::milliseconds timeout) override {
    work_->wait(timeout);
    std::this_thread::sleep_until(time_);
    return true;
  }

 private:
  const WorkPtr work_;
  const Clock::time_point time_;
};

// All-reduces over links of a rate, which carry one after the other.
class SlowLink : public c10d::Backend {
 public:
  SlowLink(BackendPtr inner, double bytes_per_second)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        bytes_per_second_(bytes_per_second) {}

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& options) override {
    // What each rank of a ring sends.
    const double bytes = 2.0 * (size_ - 1) / size_ * tensors[0].nbytes();
    free_ = std::max(free_, Clock::now()) +
            std::chrono::duration_cast<Clock::duration>(
                std::chrono::duration<double>(bytes / bytes_per_second_));
    return c10::make_intrusive<LateWork>(inner_->allreduce(tensors, options),
                                         free_);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return inner_->barrier(options);
  }

 private:
  const BackendPtr inner_;
  const double bytes_per_second_;
  Clock::time_point free_;
};

// Gloo's backends and who owns them.
class GlooGroups {
 public:
  absl::StatusOr<BackendPtr> Make(const StorePtr& store, int rank, int size) {
    CommunicatorOptions options;
    options.backend = "gloo";
    options.timeout = kTimeout;
    TANDEM_ASSIGN_OR_RETURN(
        std::unique_ptr<Communicator> group,
        Communicator::Create(store, rank, size, "gloo", options));
    groups_.push_back(std::move(group));
    return groups_.back()->process_group()->getBackend(c10::DeviceType::CPU);
  }

 private:
  std::vector<std::unique_ptr<Communicator>> groups_;
};

struct Way {
  const char* name;
  BackendPtr backend;
  bool shared;  // memory of allocateTensor()
};

at::Tensor MakeTensor(const Way& way, int64_t numel) {
  return way.shared ? way.backend->allocateTensor(numel, at::kFloat)
                    : at::ones({numel}, at::kFloat);
}

double TimeOne(const Way& way, Tensors& tensors, int count) {
  way.backend->barrier()->wait();
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) way.backend->allreduce(tensors)->wait();
  const std::chrono::duration<double, std::milli> took = Clock::now() - start;
  return took.count() / count;
}

absl::Status MeasureSize(const std::vector<Way>& ways, int64_t bytes,
                         bool prints) {
  const int count =
      static_cast<int>(std::clamp<int64_t>((8 << 20) / bytes, 1, 8));
  std::vector<Tensors> tensors;
  for (const Way& way : ways) tensors.push_back({MakeTensor(way, bytes / 4)});
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<double> medians,
      MediansInTurns(absl::GetFlag(FLAGS_rounds), ways.size(), [&](size_t way) {
        return TimeOne(ways[way], tensors[way], count);
      }));
  if (!prints) return absl::OkStatus();
  std::printf("%10lld", static_cast<long long>(bytes));
  for (const double median : medians) std::printf("  %19.2f", median);
  std::printf("\n");
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::StatusOr<BackendPtr> MakeHierarchical(const StorePtr& store, int rank,
                                            int size, int64_t chunk_bytes,
                                            GlooGroups& gloo) {
  std::vector<std::string> hosts;
  for (int r = 0; r < size; ++r) {
    hosts.push_back(absl::StrCat(r * absl::GetFlag(FLAGS_hosts) / size));
  }
  return HierarchicalBackend::Create(
      store, rank, HostLayout(hosts), kTimeout, {},
      [&](const StorePtr& its, int its_rank,
          int its_size) -> absl::StatusOr<BackendPtr> {
        TANDEM_ASSIGN_OR_RETURN(BackendPtr made,
                                gloo.Make(its, its_rank, its_size));
        const double gbit = absl::GetFlag(FLAGS_gbit);
        if (gbit == 0) return made;
        return c10::make_intrusive<SlowLink>(made, gbit * 1e9 / 8);
      },
      chunk_bytes);
}

absl::Status RunRank(const StorePtr& store, int rank) {
  const int size = absl::GetFlag(FLAGS_ranks);
  GlooGroups gloo;
  const auto in = [&](const char* name) {
    return c10::make_intrusive<c10d::PrefixStore>(name, store);
  };
  TANDEM_ASSIGN_OR_RETURN(
      const BackendPtr chunks,
      MakeHierarchical(in("chunks"), rank, size,
                       absl::GetFlag(FLAGS_chunk_kib) << 10, gloo));
  TANDEM_ASSIGN_OR_RETURN(
      const BackendPtr whole,
      MakeHierarchical(in("whole"), rank, size,
                       std::numeric_limits<int64_t>::max(), gloo));
  TANDEM_ASSIGN_OR_RETURN(const BackendPtr flat, gloo.Make(store, rank, size));
  std::vector<Way> ways = {{"in place", chunks, true},
                           {"staged", chunks, false},
                           {"whole, in place", whole, true},
                           {"whole, staged", whole, false}};
  if (absl::GetFlag(FLAGS_gbit) == 0) ways.push_back({"gloo", flat, false});
  if (rank == 0) {
    std::printf("%10s", "bytes");
    for (const Way& way : ways) std::printf("  %15s, ms", way.name);
    std::printf("\n");
  }
  return CatchTorch([&] {
    for (int64_t bytes = 256 << 10; bytes <= 64 << 20; bytes *= 4) {
      TANDEM_RETURN_IF_ERROR(MeasureSize(ways, bytes, rank == 0));
    }
    return absl::OkStatus();
  });
}

absl::Status Run() {
  const int size = absl::GetFlag(FLAGS_ranks);
  CHECK_GE(absl::GetFlag(FLAGS_hosts), 2) << "--hosts";
  CHECK_GE(size, absl::GetFlag(FLAGS_hosts)) << "--ranks";
  return SpawnRanks(size, RunRank);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tandem::Conclude("hierarchical_benchmark", tandem::Run());
}
