// c10d's operations on tensors of simulated devices, as they are: each rank has
// a device of its own, and what arrives lands in the tensor's memory.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "core/comm/communicator.h"
#include "core/sim/memory/memory.h"
#include "core/sim/streams/streams.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"

namespace tandem {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int kRanks = 3;
// The last goes in several pieces.
constexpr int64_t kSizes[] = {1, 13, 997, 300007};

// One rank's end of a group.
struct Rank {
  c10d::ProcessGroup& group;
  int rank;
  int64_t size;  // of tensors
  bool gloo;

  at::TensorOptions On() const {
    return at::device(SimDevice(rank)).dtype(at::kFloat);
  }
  // Whole numbers, other ones on each rank.
  at::Tensor Values(int of) const {
    return at::arange(size).remainder(7).add(10 * of).to(at::kFloat);
  }
  at::Tensor Mine() const { return Values(rank).to(SimDevice(rank)); }
  at::Tensor Zeros() const { return at::zeros({size}, On()); }
  at::Tensor Sum() const { return Values(0) + Values(1) + Values(2); }
};

void ExpectValues(const at::Tensor& sim, const at::Tensor& cpu) {
  EXPECT_EQ(sim.device().type(), c10::DeviceType::PrivateUse1);
  EXPECT_TRUE(at::equal(sim.cpu(), cpu)) << sim.numel() << " elements";
}

// Runs what `start` starts, and expects that it moves no tensor and takes no
// memory of the device. What Gloo does with flat tensors of its own, it does so
// for the CPU too.
enum class Gloo { kInPlace, kFlattens };

void RunOn(const Rank& on, const Tensors& watched,
           const std::function<c10::intrusive_ptr<c10d::Work>()>& start,
           Gloo gloo = Gloo::kInPlace) {
  std::vector<const void*> memory;
  for (const at::Tensor& each : watched) memory.push_back(each.data_ptr());
  sim::SynchroniseDevice(static_cast<int8_t>(on.rank));
  sim::ResetPeak(on.rank);
  const int64_t before = sim::DeviceMemoryStatistics(on.rank).now.total;
  const auto work = start();
  ASSERT_NE(work, nullptr);
  EXPECT_TRUE(work->wait());
  if (!on.gloo || gloo == Gloo::kInPlace) {
    EXPECT_EQ(sim::DeviceMemoryStatistics(on.rank).peak.total, before)
        << "no copies";
  }
  for (size_t i = 0; i < watched.size(); ++i) {
    EXPECT_EQ(watched[i].data_ptr(), memory[i]);
  }
}

class CollectivesTest : public testing::TestWithParam<const char*> {
 protected:
  // On kRanks threads, for each size.
  static void OnRanks(const std::function<void(const Rank&)>& test) {
    SimDevices(kRanks);
    CommunicatorOptions options;
    options.timeout = std::chrono::seconds(30);
    options.backend = GetParam();
    const absl::Status status = RunThreadRanks(
        kRanks,
        [&](Communicator& world) {
          for (const int64_t size : kSizes) {
            test({*world.process_group(), world.rank(), size,
                  std::string(GetParam()) == "gloo"});
          }
          return world.Barrier();
        },
        options);
    EXPECT_TRUE(status.ok()) << status;
  }
};

TEST_P(CollectivesTest, AllReduce) {
  OnRanks([](const Rank& on) {
    Tensors tensors = {on.Mine()};
    RunOn(on, tensors, [&] { return on.group.allreduce(tensors); });
    ExpectValues(tensors[0], on.Sum());
    c10d::AllreduceOptions most;
    most.reduceOp = c10d::ReduceOp::MAX;
    tensors[0].copy_(on.Mine());
    RunOn(on, tensors, [&] { return on.group.allreduce(tensors, most); });
    ExpectValues(tensors[0], on.Values(kRanks - 1));
  });
}

// What is queued on the device comes first, and a slice is enough.
TEST_P(CollectivesTest, AllReduceOfASliceThatHasJustBeenComputed) {
  OnRanks([](const Rank& on) {
    at::Tensor whole = at::zeros({on.size + 10}, on.On());
    for (int i = 0; i < 5; ++i) {
      whole.zero_();
      whole.slice(0, 5, 5 + on.size).add_(on.Mine());
      Tensors slice = {whole.slice(0, 5, 5 + on.size)};
      on.group.allreduce(slice)->wait();
      whole.mul_(2);
      EXPECT_EQ(whole.slice(0, 0, 5).abs().sum().item<float>(), 0);
      ExpectValues(whole.slice(0, 5, 5 + on.size), on.Sum() * 2);
    }
  });
}

TEST_P(CollectivesTest, Broadcast) {
  OnRanks([](const Rank& on) {
    for (int root = 0; root < kRanks; ++root) {
      Tensors tensors = {on.Mine()};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      RunOn(on, tensors, [&] { return on.group.broadcast(tensors, options); });
      ExpectValues(tensors[0], on.Values(root));
    }
  });
}

TEST_P(CollectivesTest, AllGather) {
  OnRanks([](const Rank& on) {
    Tensors input = {on.Mine()};
    std::vector<Tensors> output = {{on.Zeros(), on.Zeros(), on.Zeros()}};
    const Tensors watched = output[0];
    RunOn(
        on, watched, [&] { return on.group.allgather(output, input); },
        Gloo::kFlattens);
    for (int r = 0; r < kRanks; ++r) ExpectValues(watched[r], on.Values(r));

    at::Tensor whole = at::zeros({kRanks * on.size}, on.On());
    RunOn(
        on, {whole},
        [&] { return on.group.all_gather_single(whole, input[0]); },
        Gloo::kFlattens);
    ExpectValues(whole, at::cat({on.Values(0), on.Values(1), on.Values(2)}));
  });
}

TEST_P(CollectivesTest, ReduceScatter) {
  OnRanks([](const Rank& on) {
    // Rank r gets the sum of what all have at r: of equal numbers, shifted.
    std::vector<Tensors> input = {{}};
    for (int r = 0; r < kRanks; ++r) input[0].push_back(on.Mine().add_(r));
    Tensors output = {on.Zeros()};
    RunOn(
        on, output, [&] { return on.group.reduce_scatter(output, input); },
        Gloo::kFlattens);
    ExpectValues(output[0], on.Sum() + kRanks * on.rank);
  });
}

TEST_P(CollectivesTest, ReduceScatterOfOneTensor) {
  OnRanks([](const Rank& on) {
    at::Tensor input = at::cat({on.Mine(), on.Mine() + 1, on.Mine() + 2});
    at::Tensor output = on.Zeros();
    RunOn(
        on, {output},
        [&] { return on.group.reduce_scatter_single(output, input); },
        Gloo::kFlattens);
    ExpectValues(output, on.Sum() + kRanks * on.rank);
  });
}

TEST_P(CollectivesTest, AllToAll) {
  OnRanks([](const Rank& on) {
    // Rank s sends Values(s) + r to rank r.
    at::Tensor input = at::cat({on.Mine(), on.Mine() + 1, on.Mine() + 2});
    at::Tensor output = at::zeros({kRanks * on.size}, on.On());
    std::vector<int64_t> equal;
    RunOn(
        on, {output},
        [&] { return on.group.all_to_all_single(output, input, equal, equal); },
        Gloo::kFlattens);
    ExpectValues(output,
                 at::cat({on.Values(0), on.Values(1), on.Values(2)}) + on.rank);
  });
}

TEST_P(CollectivesTest, SendAndReceive) {
  OnRanks([](const Rank& on) {
    // Round the ring, in both directions.
    for (const int step : {1, kRanks - 1}) {
      Tensors mine = {on.Mine()};
      Tensors got = {on.Zeros()};
      const int to = (on.rank + step) % kRanks;
      const int from = (on.rank + kRanks - step) % kRanks;
      const auto sent = on.group.send(mine, to, step);
      RunOn(on, got, [&] { return on.group.recv(got, from, step); });
      EXPECT_TRUE(sent->wait());
      ExpectValues(got[0], on.Values(from));
    }
  });
}

TEST_P(CollectivesTest, Reduce) {
  OnRanks([](const Rank& on) {
    Tensors tensors = {on.Mine()};
    c10d::ReduceOptions options;
    options.rootRank = 1;
    RunOn(on, tensors, [&] { return on.group.reduce(tensors, options); });
    if (on.rank == 1) ExpectValues(tensors[0], on.Sum());
  });
}

// ProcessGroup::barrier itself keeps its tensor in a static variable, which
// ranks that are threads would write at once.
c10::intrusive_ptr<c10d::Work> Barrier(c10d::ProcessGroup& group,
                                       const at::Tensor& tensor) {
  using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("c10d::barrier", "")
                             .typed<c10::intrusive_ptr<c10d::Work>(
                                 at::Tensor, const Group&,
                                 const std::vector<int64_t>&, bool, int64_t)>();
  return op.call(tensor, Group::unsafe_reclaim_from_nonowning(&group), {},
                 /*asyncOp=*/true, /*timeout=*/30000);
}

TEST_P(CollectivesTest, Barrier) {
  std::atomic<int> arrived{0};
  OnRanks([&](const Rank& on) {
    const int round = static_cast<int>(
        std::find(std::begin(kSizes), std::end(kSizes), on.size) -
        std::begin(kSizes));
    ++arrived;
    EXPECT_TRUE(Barrier(on.group, at::empty({1}, on.On()))->wait());
    EXPECT_GE(arrived, kRanks * (round + 1));
  });
}

INSTANTIATE_TEST_SUITE_P(Over, CollectivesTest, testing::Values("gloo", "shm"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace tandem
