#include "core/comm/pending_collective.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/thread_ranks.h"

namespace tandem::pending_collective_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = PendingCollective::Clock;

TEST(PendingCollectiveTest, OneWithNothingToDoIsDone) {
  PendingCollective pending;
  EXPECT_TRUE(pending.Wait().ok());
  EXPECT_EQ(pending.started(), Clock::time_point());
  EXPECT_EQ(pending.ended(), Clock::time_point());
}

TEST(PendingCollectiveTest, SeveralRunAtOnceAndAreWaitedForInAnyOrder) {
  const absl::Status status =
      RunThreadRanks(3, [](Communicator& world) -> absl::Status {
        std::vector<at::Tensor> tensors;
        std::vector<PendingCollective> pending;
        for (int i = 0; i < 7; ++i) {
          tensors.push_back(at::full({997}, 1.0 + i + world.rank()));
          TANDEM_ASSIGN_OR_RETURN(
              pending.emplace_back(),
              world.StartAllReduceSum(tensors.back(), /*factor=*/0.5));
        }
        for (int i = 6; i >= 0; --i) {
          TANDEM_RETURN_IF_ERROR(pending[i].Wait());
          EXPECT_EQ(tensors[i][996].item<double>(), (3 * (1.0 + i) + 3) / 2);
          EXPECT_TRUE(pending[i].Wait().ok()) << "a second time";
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(PendingCollectiveTest, ItsEndIsWhenItCompletedAndNotWhenItWasWaitedFor) {
  const absl::Status status =
      RunThreadRanks(2, [](Communicator& world) -> absl::Status {
        const auto before = Clock::now();
        at::Tensor tensor = at::full({997}, 1.0);
        TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                                world.StartAllReduceSum(tensor));
        // The barrier comes after it, and so it is complete: which another
        // thread notes, perhaps a moment later.
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        EXPECT_TRUE(AwaitOtherRanks(
            [&] { return pending.ended() != Clock::time_point(); }));
        const auto later = Clock::now() + std::chrono::milliseconds(20);
        std::this_thread::sleep_until(later);
        TANDEM_RETURN_IF_ERROR(pending.Wait());
        EXPECT_LE(before, pending.started());
        EXPECT_LE(pending.started(), pending.ended());
        EXPECT_LT(pending.ended(), later);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(PendingCollectiveTest, OneThatIsDroppedRunsOn) {
  const absl::Status status =
      RunThreadRanks(2, [](Communicator& world) -> absl::Status {
        at::Tensor tensor = at::full({997}, 1.0);
        TANDEM_RETURN_IF_ERROR(world.StartAllReduceSum(tensor).status());
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        EXPECT_EQ(tensor[0].item<double>(), 2);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(PendingCollectiveTest, ThePurposeIsRenderedOnlyForAMessage) {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(2);
  int rendered[2] = {0, 0};
  const absl::Status status = RunThreadRanks(
      2,
      [&](Communicator& world) -> absl::Status {
        const CollectivePurpose purpose = [&] {
          ++rendered[world.rank()];
          return std::string("bucket 1 (fc.weight) of step 4");
        };
        at::Tensor tensor = at::full({5}, 1.0);
        TANDEM_RETURN_IF_ERROR(world.AllReduceSum(tensor, purpose));
        TANDEM_RETURN_IF_ERROR(world.Broadcast(tensor, 0, purpose));
        TANDEM_RETURN_IF_ERROR(world.AllGather(tensor, purpose).status());
        TANDEM_RETURN_IF_ERROR(world.Barrier(purpose));
        EXPECT_EQ(rendered[world.rank()], 0);
        if (world.rank() == 1) return absl::OkStatus();
        const absl::Status failed = world.AllReduceSum(tensor, purpose);
        EXPECT_THAT(failed.message(),
                    AllOf(HasSubstr("all-reduce #5 (bucket 1 (fc.weight) of "
                                    "step 4) of group \"world\""),
                          HasSubstr("not heard of: rank 1")));
        return failed;
      },
      options);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(rendered[0], 1);
}

}  // namespace
}  // namespace tandem::pending_collective_test
