#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/testing/statuses.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/validator.h"

namespace tandem::sequential_test {
namespace {

using ::testing::Each;

TEST(SequentialScheduleTest, OneMicrobatchAtATimeGoesThroughAllDevices) {
  EXPECT_EQ(ToString(*SequentialSchedule(2, 2)), "F0 B0 F1 B1\nF0 B0 F1 B1");
}

TEST(SequentialScheduleTest, IsValidAndHoldsOneMicrobatch) {
  for (const int devices : {1, 2, 3, 7}) {
    for (const int microbatches : {1, 2, 5}) {
      const auto schedule = SequentialSchedule(devices, microbatches);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      EXPECT_EQ(schedule->name, kSequential);
      const auto facts = ValidateSchedule(*schedule, {1, 0});
      ASSERT_TRUE(facts.ok()) << facts.status();
      EXPECT_THAT(facts->peak_activations, Each(1));
    }
  }
}

TEST(SequentialScheduleTest, NothingAtAllIsRefused) {
  for (const auto& [devices, microbatches] : {std::pair(0, 1), {1, 0}}) {
    EXPECT_THAT(SequentialSchedule(devices, microbatches).status(),
                Says("at least one device and one microbatch"));
  }
}

}  // namespace
}  // namespace tandem::sequential_test
