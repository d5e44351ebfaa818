// Which microbatches of a step are no special ones, by schedule.

#include "parallel/pipeline/graphs/middle_microbatches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "parallel/schedule/schedules.h"

namespace tandem::middle_microbatches_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::set<int> MiddleOf(const Schedule& schedule, int stage, int microbatches) {
  const auto device = static_cast<size_t>(DeviceOfStage(schedule, stage));
  return MiddleMicrobatches(schedule.actions[device], stage, microbatches);
}

TEST(MiddleMicrobatchesTest, AllButTheFirstAndTheLast) {
  for (const std::string name : {"1f1b", "zb_h1"}) {
    SCOPED_TRACE(name);
    const Schedule schedule = *MakeSchedule(name, {2, 1, 5});
    for (const int stage : {0, 1}) {
      EXPECT_THAT(MiddleOf(schedule, stage, 5), ElementsAre(1, 2, 3));
      EXPECT_THAT(MiddleOf(schedule, stage, 3), ElementsAre(1));
      EXPECT_THAT(MiddleOf(schedule, stage, 2), IsEmpty());
      EXPECT_THAT(MiddleOf(schedule, stage, 1), IsEmpty());
      EXPECT_THAT(MiddleOf(schedule, stage, 0), IsEmpty());
    }
  }
}

// Others of a device's stages do not count.
TEST(MiddleMicrobatchesTest, EachStageHasItsOwn) {
  const Schedule schedule = *MakeSchedule("interleaved_1f1b", {2, 2, 4});
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_THAT(MiddleOf(schedule, stage, 4), ElementsAre(1, 2));
  }
}

// Forward begins with 0, gradients with 2; 1 is the last to get any.
TEST(MiddleMicrobatchesTest, FirstOfEachKindAreSpecial) {
  const auto forward = ActionKind::kForward;
  const auto input = ActionKind::kBackwardInput;
  const auto weight = ActionKind::kBackwardWeight;
  EXPECT_THAT(MiddleMicrobatches({{forward, 0, 0},
                                  {forward, 0, 1},
                                  {forward, 0, 2},
                                  {forward, 0, 3},
                                  {forward, 0, 4},
                                  {input, 0, 2},
                                  {input, 0, 4},
                                  {input, 0, 3},
                                  {weight, 0, 4},
                                  {input, 0, 0},
                                  {weight, 0, 0},
                                  {weight, 0, 3},
                                  {weight, 0, 2},
                                  {input, 0, 1},
                                  {weight, 0, 1}},
                                 /*stage=*/0, /*microbatches=*/5),
              ElementsAre(3));
}

}  // namespace
}  // namespace tandem::middle_microbatches_test
