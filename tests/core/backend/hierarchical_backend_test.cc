#include "core/backend/hierarchical_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/backend/host_works.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/comm/group_buffer.h"
#include "core/store/store.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/testing/log_lines.h"
#include "tests/core/testing/on_threads.h"

namespace tandem::hierarchical_backend_test {
namespace {

// Shared memory inside hosts and Gloo between them, on one machine: each rank
// is told which host it is on.

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Hosts = std::vector<std::string>;
using Tensors = std::vector<at::Tensor>;

// Two hosts of three and two ranks that are not neighbours; each rank alone;
// and one host with one rank beside one with all others.
const Hosts kLayouts[] = {{"a", "b", "a", "b", "a"},
                          {"a", "b", "c"},
                          {"a", "b", "b", "b", "b", "b", "b"}};

void OnRanks(const Hosts& hosts, const std::function<void(Communicator&)>& fn,
             int timeout_ms = 30000, int straggler_warning_ms = 0) {
  const StorePtr store = NewHashStore(std::chrono::milliseconds(timeout_ms));
  const int n = static_cast<int>(hosts.size());
  OnThreads(n, [&](int rank) {
    CommunicatorOptions options;
    options.host = hosts[rank];
    options.timeout = std::chrono::milliseconds(timeout_ms);
    options.straggler_warning = std::chrono::milliseconds(straggler_warning_ms);
    auto world = Communicator::Create(store, rank, n, "world", options);
    ASSERT_TRUE(world.ok()) << world.status();
    const absl::Status thrown = CatchTorch([&] { fn(**world); });
    EXPECT_TRUE(thrown.ok()) << thrown;
  });
}

void Everywhere(const std::function<void(Communicator&)>& fn) {
  for (const Hosts& hosts : kLayouts) OnRanks(hosts, fn);
}

void ExpectEqual(const at::Tensor& got, const at::Tensor& expected) {
  EXPECT_TRUE(at::equal(got, expected)) << got.numel() << " elements";
}

at::Tensor Mine(int rank, int64_t size) {
  return at::arange(size, at::kFloat).add(rank);
}

TEST(HierarchicalBackendTest, AllReduceSumsOverHosts) {
  Everywhere([](Communicator& world) {
    const int n = world.size();
    for (const int64_t size : {1, 13, 300007}) {
      at::Tensor plain = Mine(world.rank(), size);
      auto shared = NewGroupBuffer(world, size, at::kFloat);
      ASSERT_TRUE(shared.ok()) << shared.status();
      shared->copy_(plain);
      ASSERT_TRUE(world.AllReduceSum(plain).ok());
      auto pending = world.StartAllReduceSum(*shared, 0.5);
      ASSERT_TRUE(pending.ok() && pending->Wait().ok());
      const at::Tensor sum = Mine(0, size).mul(n).add(n * (n - 1) / 2);
      ExpectEqual(plain, sum);
      ExpectEqual(*shared, sum.mul(0.5));
    }
  });
}

TEST(HierarchicalBackendTest, AnAverageIsOfAllRanks) {
  OnRanks(kLayouts[0], [](Communicator& world) {
    Tensors tensors = {at::full({7}, world.rank(), at::kDouble)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::AVG;
    world.process_group()->allreduce(tensors, options)->wait();
    ExpectEqual(tensors[0], at::full({7}, 2.0, at::kDouble));
  });
}

TEST(HierarchicalBackendTest, BroadcastFromEveryRoot) {
  Everywhere([](Communicator& world) {
    for (int root = 0; root < world.size(); ++root) {
      at::Tensor tensor = Mine(world.rank(), 997);
      ASSERT_TRUE(world.Broadcast(tensor, root).ok());
      ExpectEqual(tensor, Mine(root, 997));
    }
  });
}

TEST(HierarchicalBackendTest, BarrierAndGatherAndTheRest) {
  Everywhere([](Communicator& world) {
    ASSERT_TRUE(world.Barrier().ok());
    auto all = world.AllGather(Mine(world.rank(), 13));
    ASSERT_TRUE(all.ok()) << all.status();
    for (int r = 0; r < world.size(); ++r) ExpectEqual((*all)[r], Mine(r, 13));
  });
}

TEST(HierarchicalBackendTest, MessagesInsideAndBetweenHosts) {
  OnRanks(kLayouts[0], [](Communicator& world) {
    const int n = world.size();
    for (const int step : {1, 2}) {  // to another host, and to the same
      Tensors out = {Mine(world.rank(), 997)};
      Tensors in = {at::zeros({997})};
      const int from = (world.rank() + n - step) % n;
      c10::intrusive_ptr<c10d::Work> receive, send;
      {
        absl::MutexLock lock(&IssueMutex());
        receive = world.process_group()->recv(in, from, step);
        send =
            world.process_group()->send(out, (world.rank() + step) % n, step);
      }
      receive->wait();
      send->wait();
      ExpectEqual(in[0], Mine(from, 997));
    }
  });
}

TEST(HierarchicalBackendTest, SubgroupsOfOneHostShareMemoryAlone) {
  OnRanks(kLayouts[0], [](Communicator& world) {
    const bool even = world.rank() % 2 == 0;
    const std::vector<int> ranks =
        even ? std::vector<int>{0, 2, 4} : std::vector<int>{1, 3};
    auto host = world.Subgroup(ranks, "host");
    ASSERT_TRUE(host.ok()) << host.status();
    EXPECT_EQ((*host)
                  ->process_group()
                  ->getBackend(c10::DeviceType::CPU)
                  ->getBackendName(),
              "shm");
    at::Tensor tensor = at::full({3}, world.rank(), at::kFloat);
    ASSERT_TRUE((*host)->AllReduceSum(tensor).ok());
    ExpectEqual(tensor, at::full({3}, even ? 6 : 4, at::kFloat));
  });
}

// Rank 2 does not come to `collective`, and leaves when the others have given
// up.
void ExpectTheMissingRankIsNamed(
    const std::function<absl::Status(Communicator&)>& collective) {
  std::atomic<int> gave_up{0};
  OnRanks(
      {"a", "b", "b"},
      [&](Communicator& world) {
        if (world.rank() == 2) {
          EXPECT_TRUE(AwaitOtherRanks([&] { return gave_up == 2; }));
          return;
        }
        const absl::Status status = collective(world);
        ++gave_up;
        EXPECT_TRUE(absl::IsDeadlineExceeded(status) ||
                    absl::IsUnavailable(status))
            << status;
        if (world.rank() == 1) {
          EXPECT_THAT(std::string(status.message()),
                      HasSubstr("timed out waiting for rank 2 (pid "));
        }
      },
      2000);
}

// The names in messages are those of the whole group.
TEST(HierarchicalBackendTest, AMissingRankIsNamedAsInTheWholeGroup) {
  ExpectTheMissingRankIsNamed(
      [](Communicator& world) { return world.Barrier(); });
}

TEST(HierarchicalBackendTest, ARankThatMissesALargeAllReduceIsNamed) {
  ExpectTheMissingRankIsNamed([](Communicator& world) {
    at::Tensor tensor = at::zeros({3 * HierarchicalBackend::kChunkBytes});
    return world.AllReduceSum(tensor);
  });
}

TEST(HierarchicalBackendTest, AMonitoredBarrierNamesWhoDoesNotCome) {
  std::atomic<int> gave_up{0};
  OnRanks({"a", "b", "b"}, [&](Communicator& world) {
    c10d::BarrierOptions options;
    options.timeout = std::chrono::seconds(20);
    world.process_group()->monitoredBarrier(options);
    if (world.rank() == 2) {
      EXPECT_TRUE(AwaitOtherRanks([&] { return gave_up == 2; }));
      return;
    }
    options.timeout = std::chrono::seconds(2);
    const absl::Status status =
        CatchTorch([&] { world.process_group()->monitoredBarrier(options); });
    ++gave_up;
    EXPECT_FALSE(status.ok());
    if (world.rank() == 0) {
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("Rank 2 failed to pass monitoredBarrier"));
    }
  });
}

// All-reduce, broadcast and barrier run on a thread of the backend.
TEST(HierarchicalBackendTest, ALateRankIsNamedBetweenHosts) {
  LogLines log;
  std::atomic<size_t> made{0};
  OnRanks(
      kLayouts[0],
      [&](Communicator& world) {
        ++made;  // the others are not to be late, too
        EXPECT_TRUE(
            AwaitOtherRanks([&] { return made == kLayouts[0].size(); }));
        if (world.rank() == 3) {
          EXPECT_TRUE(log.Await("rank 3 is late"));
        }
        at::Tensor tensor = Mine(world.rank(), 13);
        EXPECT_TRUE(world.AllReduceSum(tensor).ok());
      },
      30000, /*straggler_warning_ms=*/2000);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("rank 3 is late: rank "),
                                       HasSubstr("late for all-reduce #1")));
}

// Two hosts of one rank each; between hosts they share memory here, so that no
// network is needed.
TEST(HierarchicalBackendTest, AloneOnAHostThereIsNothingToDoInside) {
  const StorePtr store = NewHashStore(std::chrono::seconds(30));
  const HostLayout layout({"a", "b"});
  OnThreads(2, [&](int rank) {
    const auto shm = [&](const std::string& key, int group_rank, int size) {
      return ShmBackend::Create(
                 c10::make_intrusive<c10d::PrefixStore>(key, store), group_rank,
                 size, std::chrono::seconds(30), {})
          .value();
    };
    const auto local = shm(absl::StrCat("host ", rank), 0, 1);
    const auto leaders = shm("leaders", rank, 2);
    HierarchicalBackend backend(rank, layout, local, leaders, leaders);
    Tensors tensors = {Mine(rank, 997)};
    backend.allreduce(tensors)->wait();
    ExpectEqual(tensors[0], Mine(0, 997).mul(2).add(1));
    backend.broadcast(tensors)->wait();
    backend.barrier()->wait();
    EXPECT_EQ(local->getSequenceNumberForGroup(), 0);
    EXPECT_EQ(leaders->getSequenceNumberForGroup(), 3);
  });
}

// Ranks by host.

TEST(HostLayoutTest, RanksAreGroupedByHostInTheirOrder) {
  const HostLayout layout({"x", "y", "x", "z", "y"});
  EXPECT_EQ(layout.ranks, (std::vector<std::vector<int>>{{0, 2}, {1, 4}, {3}}));
  EXPECT_EQ(layout.host, (std::vector<int>{0, 1, 0, 2, 1}));
  EXPECT_EQ(layout.local, (std::vector<int>{0, 0, 1, 0, 1}));
}

// The order in which phases of chunks are started and waited for.

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tensors = std::vector<at::Tensor>;

// Says when it is waited for.
class NotedWork : public c10d::Work {
 public:
  explicit NotedWork(std::function<void()> waited)
      : waited_(std::move(waited)) {}
  bool wait(std::chrono::milliseconds) override {
    waited_();
    return true;
  }

 private:
  const std::function<void()> waited_;
};

// Notes "up 0" when the phase of the first chunk starts, and "up 0 ended" when
// it has been waited for.
class Notes {
 public:
  ThreePhases::Start Phase(const std::string& name) {
    return [this, name, count = 0](Tensors& chunk) mutable {
      const std::string what = absl::StrCat(name, " ", count++);
      lines.push_back(what);
      chunks.push_back(chunk.at(0));
      return c10::make_intrusive<NotedWork>(
          [this, what] { lines.push_back(what + " ended"); });
    };
  }

  std::vector<std::string> lines;
  Tensors chunks;
};

TEST(ChunkedPhasesTest, WhileAChunkIsAcrossTheNextGoesUpAndTheLastComesDown) {
  Notes notes;
  RunInChunks({at::zeros({64})}, 64,
              {notes.Phase("up"), notes.Phase("across"), notes.Phase("down")});
  EXPECT_THAT(notes.lines,
              ElementsAre("up 0", "up 1", "up 0 ended", "across 0", "up 2",
                          "up 1 ended", "across 1", "across 0 ended", "down 0",
                          "up 3", "up 2 ended", "across 2", "across 1 ended",
                          "down 1", "up 3 ended", "across 3", "across 2 ended",
                          "down 2", "across 3 ended", "down 3", "down 0 ended",
                          "down 1 ended", "down 2 ended", "down 3 ended"));
}

// A rank that is no leader starts the same inside of its host in the same
// order.
TEST(ChunkedPhasesTest, WithoutOnePhaseTheOthersKeepTheirOrder) {
  Notes notes;
  RunInChunks({at::zeros({64})}, 64,
              {notes.Phase("up"), {}, notes.Phase("down")});
  std::vector<std::string> starts;
  for (const std::string& line : notes.lines) {
    if (line.find("ended") == std::string::npos) starts.push_back(line);
  }
  EXPECT_THAT(starts, ElementsAre("up 0", "up 1", "up 2", "down 0", "up 3",
                                  "down 1", "down 2", "down 3"));
}

TEST(ChunkedPhasesTest, ChunksAreTheWholeTensorAndAlike) {
  for (const int64_t size : {0, 1, 16, 17, 997, 5003}) {
    const at::Tensor tensor = at::arange(size, at::kFloat);
    Notes notes;
    RunInChunks({tensor}, 1024, {{}, notes.Phase("across"), {}});
    EXPECT_TRUE(at::equal(at::cat(notes.chunks), tensor)) << size;
    EXPECT_EQ(notes.chunks.size(), size == 0 ? 1 : (size * 4 + 1023) / 1024);
    for (const at::Tensor& chunk : notes.chunks) {
      EXPECT_LE(chunk.nbytes(), 1024U);
      EXPECT_TRUE(chunk.is_alias_of(tensor) || size == 0);
      // All but the last are of one size, which is lines of the cache.
      if (chunk.data_ptr() != notes.chunks.back().data_ptr()) {
        EXPECT_EQ(chunk.nbytes() % 64, 0U);
        EXPECT_GE(chunk.numel(), notes.chunks.back().numel());
      }
    }
  }
}

TEST(ChunkedPhasesTest, SeveralTensorsOrOneWithGapsAreOneChunk) {
  Notes notes;
  const ThreePhases across{{}, notes.Phase("across"), {}};
  RunInChunks({at::zeros({64}), at::zeros({64})}, 64, across);
  RunInChunks({at::zeros({64, 2}).select(1, 0)}, 64, across);
  EXPECT_EQ(notes.chunks.size(), 2U);
}

TEST(ChunkedPhasesTest, AFailureEndsItAndStartsNothingMore) {
  Notes notes;
  const ThreePhases phases{{},
                           [](Tensors&) -> c10::intrusive_ptr<c10d::Work> {
                             return c10::make_intrusive<NotedWork>([] {
                               TORCH_CHECK(false, "the cable was cut");
                             });
                           },
                           notes.Phase("down")};
  EXPECT_THROW(RunInChunks({at::zeros({64})}, 64, phases), c10::Error);
  EXPECT_THAT(notes.lines, IsEmpty());
}

}  // namespace
}  // namespace tandem::hierarchical_backend_test
