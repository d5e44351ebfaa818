// The group that tests of divided layers stand on.

#include "core/testing/axis_ranks.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include <memory>

#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::axis_ranks_test {
namespace {

using Group = std::shared_ptr<ThreadAxisGroup>;

TEST(AxisRanksTest, RanksThatIssueDifferentCollectivesAreTold) {
  EXPECT_THAT(RunAxisRanks(2,
                           [](const Group& group) {
                             group->AllReduceSum(
                                 at::ones({2}),
                                 group->index() == 0 ? "one" : "other");
                             return absl::OkStatus();
                           }),
              Says("ranks issue different collectives: all-reduce one, Float "
                   "[2] | all-reduce other, Float [2]"));
}

TEST(AxisRanksTest, ARankThatFailsEndsTheOthers) {
  EXPECT_THAT(RunAxisRanks(3,
                           [](const Group& group) {
                             if (group->index() == 1) {
                               return absl::InternalError("gone");
                             }
                             group->AllReduceSum(at::ones({2}), "x");
                             return absl::OkStatus();
                           }),
              Says("rank 1: gone"));
}

TEST(AxisRanksTest, SumsAreRoundedOnce) {
  ExpectOk(RunAxisRanks(3, [](const Group& group) {
    // 1 + 2^-9 + 2^-9 is a number in bf16, 1 + 2^-9 is not.
    const at::Tensor x =
        at::full({1}, group->index() == 0 ? 1.0 : 0.001953125, at::kBFloat16);
    group->AllReduceSum(x, "x");
    EXPECT_EQ(x.item<float>(), 1.0f);
    const at::Tensor y =
        at::full({1}, group->index() == 0 ? 1.0 : 0.00390625, at::kBFloat16);
    group->AllReduceSum(y, "y");
    EXPECT_EQ(y.item<float>(), 1.0078125f);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::axis_ranks_test
