// What simulated NCCL computes, on streams, while the host goes on.

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/sim/nccl/nccl_ranks.h"

namespace tandem::collectives_test {
namespace {

bool AllAre(const at::Tensor& tensor, double value) {
  return at::equal(tensor.cpu(), at::full({tensor.numel()}, value, at::kFloat));
}

class NcclCollectives : public ::testing::TestWithParam<int> {};

TEST_P(NcclCollectives, AllReduceSums) {
  const int n = GetParam();
  ExpectOk(RunNcclRanks(n, [n](const NcclRank& rank) -> absl::Status {
    for (int64_t size : {1, 13, 997, 300007}) {
      at::Tensor values = rank.Full(size, rank.rank + 1);
      TANDEM_RETURN_IF_ERROR(rank.group.AllReduceSum(values));
      TANDEM_RETURN_IF_ERROR(
          Expect(AllAre(values, n * (n + 1) / 2.0), "the sum"));
      values = rank.Full(size, rank.rank + 1);
      TANDEM_ASSIGN_OR_RETURN(auto pending,
                              rank.group.StartAllReduceSum(values, 0.5));
      TANDEM_RETURN_IF_ERROR(pending.Wait());
      TANDEM_RETURN_IF_ERROR(
          Expect(AllAre(values, n * (n + 1) / 4.0), "half of it"));
    }
    return rank.group.Synchronize();
  }));
}

// NCCL rounds a factor to the dtype: by a third in bf16, all means would be
// larger by a 512th. (All ranks but one have zeros, so that sums round
// nothing.)
TEST_P(NcclCollectives, MeansInHalfPrecisionAreProductsByTheWholeFactor) {
  const int n = GetParam();
  ExpectOk(RunNcclRanks(n, [n](const NcclRank& rank) -> absl::Status {
    for (const c10::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const at::Tensor numbers = at::arange(256).to(dtype);
      const at::Tensor mine = numbers.mul(rank.rank == n - 1);
      const at::Tensor product = numbers.mul(1.0 / n);
      const at::Tensor values = mine.to(rank.device);
      TANDEM_ASSIGN_OR_RETURN(auto pending,
                              rank.group.StartAllReduceSum(values, 1.0 / n));
      TANDEM_RETURN_IF_ERROR(pending.Wait());
      TANDEM_RETURN_IF_ERROR(
          Expect(at::equal(values.cpu(), product), "all products"));
      const at::Tensor at_root = mine.to(rank.device);
      TANDEM_ASSIGN_OR_RETURN(pending,
                              rank.group.StartReduceSum(at_root, 0, 1.0 / n));
      TANDEM_RETURN_IF_ERROR(pending.Wait());
      TANDEM_RETURN_IF_ERROR(
          Expect(rank.rank != 0 || at::equal(at_root.cpu(), product),
                 "the root's products"));
    }
    return absl::OkStatus();
  }));
}

// What the backend itself is given is rounded so, whichever collective sums.
TEST(NcclFactor, IsRoundedToTheDtype) {
  ExpectOk(RunNcclRanks(2, [](const NcclRank& rank) -> absl::Status {
    for (const c10::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
      const at::Tensor numbers = at::arange(256).to(dtype);
      const at::Tensor mine = numbers.mul(rank.rank).to(rank.device);
      const at::Tensor expected = numbers.mul(RoundedTo(dtype, 1.0 / 3));
      std::vector<at::Tensor> all = {mine.clone()};
      c10d::AllreduceOptions for_all;
      for_all.reduceOp = c10d::makePreMulSum(1.0 / 3);
      rank.backend().allreduce(all, for_all)->wait();
      std::vector<at::Tensor> at_root = {mine.clone()};
      c10d::ReduceOptions for_root;
      for_root.reduceOp = c10d::makePreMulSum(1.0 / 3);
      rank.backend().reduce(at_root, for_root)->wait();
      at::Tensor part = mine.new_empty({128});
      at::Tensor whole = mine.clone();
      c10d::ReduceScatterOptions for_parts;
      for_parts.reduceOp = c10d::makePreMulSum(1.0 / 3);
      rank.backend().reduce_scatter_single(part, whole, for_parts)->wait();
      TANDEM_RETURN_IF_ERROR(
          Expect(at::equal(all[0].cpu(), expected), "all-reduce"));
      TANDEM_RETURN_IF_ERROR(Expect(
          rank.rank != 0 || at::equal(at_root[0].cpu(), expected), "reduce"));
      TANDEM_RETURN_IF_ERROR(Expect(
          at::equal(part.cpu(), expected.narrow(0, 128 * rank.rank, 128)),
          "reduce-scatter"));
    }
    return rank.group.Synchronize();
  }));
}

TEST_P(NcclCollectives, BroadcastAndAllGather) {
  const int n = GetParam();
  ExpectOk(RunNcclRanks(n, [n](const NcclRank& rank) -> absl::Status {
    for (int root = 0; root < n; ++root) {
      const at::Tensor values = rank.Full(29, rank.rank);
      TANDEM_RETURN_IF_ERROR(rank.group.Broadcast(values, root));
      TANDEM_RETURN_IF_ERROR(Expect(AllAre(values, root), "the root's"));
    }
    TANDEM_ASSIGN_OR_RETURN(const auto all,
                            rank.group.AllGather(rank.Full(5, rank.rank)));
    for (int other = 0; other < n; ++other) {
      TANDEM_RETURN_IF_ERROR(
          Expect(AllAre(all[static_cast<size_t>(other)], other), "a part"));
    }
    return rank.group.Barrier();
  }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclCollectives, ::testing::Values(1, 2, 3, 7));

// Rank 1 joins only when rank 0's host has come back from starting and from
// waiting.
TEST(NcclHost, DoesNotWait) {
  ExpectOk(RunNcclRanks(2, [](const NcclRank& rank) -> absl::Status {
    at::Tensor values = rank.Full(100, 1);
    RunTwice([&] { values.mul_(1); });
    if (rank.rank == 1) TANDEM_RETURN_IF_ERROR(rank.world.Barrier());
    TANDEM_RETURN_IF_ERROR(rank.group.AllReduceSum(values));
    values.mul_(3);  // on the stream, behind the sum
    if (rank.rank == 0) TANDEM_RETURN_IF_ERROR(rank.world.Barrier());
    return Expect(AllAre(values, 6), "three times the sum");
  }));
}

// A queue of works: the bits come in the order of their start, though the
// device's stream is held up at random.
TEST(NcclHost, WorksRunBehindWhatTheDeviceComputes) {
  ExpectOk(RunNcclRanks(3, [](const NcclRank& rank) -> absl::Status {
    at::Tensor values = rank.Full(1000, 1);
    for (int i = 0; i < 20; ++i) {
      values.add_(rank.rank);
      TANDEM_RETURN_IF_ERROR(rank.group.AllReduceSum(values));
      values.div_(3);
    }
    return Expect(AllAre(values, 21), "1 and twenty means of 0, 1, 2");
  }));
}

TEST(NcclHost, TensorsOfTheHostGoAnotherWay) {
  ExpectOk(RunNcclRanks(2, [](const NcclRank& rank) -> absl::Status {
    const at::Tensor values = at::full({3}, 1.0, at::kFloat);
    TANDEM_RETURN_IF_ERROR(rank.group.AllReduceSum(values));
    return Expect(AllAre(values, 2), "the sum, at once");
  }));
}

TEST(NcclHost, AGroupWithoutADeviceSaysSo) {
  ExpectOk(RunNcclRanks(2, [](const NcclRank& rank) -> absl::Status {
    const absl::Status refused = rank.world.AllReduceSum(rank.Full(1, 1));
    TANDEM_RETURN_IF_ERROR(Expect(absl::IsInvalidArgument(refused), "refused"));
    return Expect(refused.message().find(
                      "it has a communicator for tensors of the CPU alone, "
                      "and was given Float on sim:") != std::string::npos,
                  std::string(refused.message()));
  }));
}

// Sums of a module that lies on several devices: a communicator for each.
absl::Status SumOnTwoDevices(Communicator& world) {
  const c10::Device first = SimDevice(2 * world.rank());
  const c10::Device second = SimDevice(2 * world.rank() + 1);
  const auto full = [](c10::Device device, double value) {
    return at::full({5}, value, at::device(device).dtype(at::kFloat));
  };
  const at::Tensor a = full(first, 1), b = full(second, 2);
  TANDEM_RETURN_IF_ERROR(world.AllReduceSum(b));
  TANDEM_RETURN_IF_ERROR(world.AllReduceSum(a));
  TANDEM_RETURN_IF_ERROR(Expect(AllAre(a, world.size()), "on the first"));
  TANDEM_RETURN_IF_ERROR(Expect(AllAre(b, 2 * world.size()), "on the second"));
  // Nobody's here.
  const absl::Status refused = world.AllReduceSum(full(SimDevice(15), 1));
  return Expect(refused.message().find(
                    "tensors of the CPU, " + first.str() + ", " + second.str() +
                    ", and was given Float on sim:15; "
                    "CommunicatorOptions::device and further_devices "
                    "say") != std::string::npos,
                std::string(refused.message()));
}

TEST(NcclDevices, OfARankHaveACommunicatorEach) {
  for (const int n : {2, 3, 7}) {
    SimDevices(2 * n);
    ExpectOk(RunThreadRanks(
        n, &SumOnTwoDevices,
        [] {
          CommunicatorOptions options;
          options.backend = "sim_nccl";
          options.device = SimDevice(2 * ThisThreadsRank());
          options.further_devices = {SimDevice(2 * ThisThreadsRank() + 1)};
          return options;
        },
        std::chrono::seconds(30)));
  }
}

// Messages that cannot be one group fail, and the thread's other groups of
// ranks work on.
absl::Status SendFromTwoDevices(Communicator& world) {
  const c10::Device first = SimDevice(2 * world.rank());
  const c10::Device second = SimDevice(2 * world.rank() + 1);
  const auto full = [](c10::Device device) {
    return at::full({5}, 1, at::device(device).dtype(at::kFloat));
  };
  SubgroupOptions own;
  own.device = first;
  TANDEM_ASSIGN_OR_RETURN(const auto other,
                          world.Subgroup({0, 1}, "other", own));
  const int peer = 1 - world.rank();
  const RankMessage messages[] = {{/*sends=*/true, full(first), peer, 1},
                                  {/*sends=*/false, full(second), peer, 1}};
  const absl::Status failed = world.StartMessages(messages).status();
  TANDEM_RETURN_IF_ERROR(Expect(
      failed.message().find("tensors of one device") != std::string::npos,
      std::string(failed.message())));
  const at::Tensor sum = full(first);
  TANDEM_RETURN_IF_ERROR(other->AllReduceSum(sum));
  TANDEM_RETURN_IF_ERROR(Expect(AllAre(sum, 2), "the sum"));
  return other->Synchronize();
}

TEST(NcclMessages, ThatFailLeaveNoGroupOpen) {
  SimDevices(4);
  ExpectOk(RunThreadRanks(
      2, &SendFromTwoDevices,
      [] {
        CommunicatorOptions options;
        options.backend = "sim_nccl";
        options.device = SimDevice(2 * ThisThreadsRank());
        options.further_devices = {SimDevice(2 * ThisThreadsRank() + 1)};
        return options;
      },
      std::chrono::seconds(30)));
}

// NCCL's own thread would wait for the group's end.
TEST(NcclMessages, AnOpenGroupHoldsUpTheThread) {
  ExpectOk(RunNcclRanks(2, [](const NcclRank& rank) -> absl::Status {
    SubgroupOptions own;
    own.device = rank.device;
    TANDEM_ASSIGN_OR_RETURN(const auto other,
                            rank.world.Subgroup({0, 1}, "other", own));
    c10d::Backend& further =
        *other->process_group()->getBackend(rank.device.type());
    std::vector<at::Tensor> ones = {rank.Full(3, 1)};
    rank.backend().startCoalescing();
    const absl::Status held =
        CatchTorch([&] { further.allreduce(ones)->wait(); });
    TANDEM_RETURN_IF_ERROR(
        Expect(held.message().find("left a group open") != std::string::npos,
               std::string(held.message())));
    rank.backend().allreduce(ones);
    rank.backend().endCoalescing()->wait();
    further.allreduce(ones)->wait();
    return Expect(AllAre(ones[0], 4), "both sums");
  }));
}

}  // namespace
}  // namespace tandem::collectives_test
