// Actions that gather and free parameters: where they stand in every schedule,
// and what a schedule of one's own gets wrong.

#include "parallel/schedule/unshards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/simulation.h"
#include "parallel/schedule/validator.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Schedule Named(const std::string& name, const ScheduleShape& shape) {
  absl::StatusOr<Schedule> made = MakeSchedule(name, shape);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

TEST(UnshardsTest, GatherAStageOnceAStep) {
  EXPECT_EQ(ToString(WithUnshards(Named("1f1b", {2, 1, 3}), 0)),
            "U F0 F1 B0 F2 B1 B2 R\n"
            "U F0 B0 F1 B1 F2 B2 R");
}

// The first device of ZB-V has the first and the last stage.
TEST(UnshardsTest, GatherAheadAndFreeWhatIsNotNextWithinTheLimit) {
  const Schedule schedule = Named("looped_bfs", {2, 2, 2});
  ASSERT_EQ(ToString(schedule),
            "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1\n"
            "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1");
  EXPECT_EQ(ToString(WithUnshards(schedule, 1)),
            "0U 0F0 0F1 0R 2U 2F0 2F1 2B0 2B1 2R 0U 0B0 0B1 0R\n"
            "1U 1F0 1F1 1R 3U 3F0 3F1 3B0 3B1 3R 1U 1B0 1B1 1R");
  EXPECT_EQ(ToString(WithUnshards(schedule, 2)),
            "0U 2U 0F0 0F1 2F0 2F1 2B0 2B1 2R 0B0 0B1 0R\n"
            "1U 3U 1F0 1F1 3F0 3F1 3B0 3B1 3R 1B0 1B1 1R");
}

std::vector<Action> Computing(const std::vector<Action>& actions) {
  std::vector<Action> computing;
  std::copy_if(actions.begin(), actions.end(), std::back_inserter(computing),
               [](const Action& each) { return Computes(each.kind); });
  return computing;
}

TEST(UnshardsTest, AreProvedInEverySchedule) {
  int cells = 0;
  for (const std::string& name : ScheduleNames()) {
    for (const int devices : {1, 2, 3, 7}) {
      for (const int chunks : {1, 2, 5}) {
        const auto made = MakeSchedule(name, {devices, chunks, 2 * devices});
        if (!made.ok()) continue;
        for (const int most : {0, 1, 2, 3}) {
          SCOPED_TRACE(
              absl::StrCat(name, " ", devices, " ", chunks, " ", most));
          const Schedule whole = WithUnshards(*made, most);
          ASSERT_TRUE(HasUnshards(whole));
          for (size_t d = 0; d < whole.actions.size(); ++d) {
            EXPECT_EQ(Computing(whole.actions[d]), made->actions[d]);
          }
          ScheduleLimits limits;
          limits.channel_capacity = 2 * devices;
          limits.max_unsharded_stages = most;
          const auto facts = ValidateSchedule(whole, limits);
          ASSERT_TRUE(facts.ok()) << facts.status();
          const int expected = most == 0 ? chunks : std::min(most, chunks);
          EXPECT_EQ(facts->peak_unsharded, std::vector<int>(devices, expected));
          EXPECT_EQ(ValidateSchedule(*made, limits)->peak_activations,
                    facts->peak_activations);
          const auto read = ParseSchedule(name, ToString(whole));
          ASSERT_TRUE(read.ok()) << read.status();
          EXPECT_EQ(read->actions, whole.actions);
          EXPECT_EQ(WithUnshards(whole, 1).actions, whole.actions);
          ++cells;
        }
      }
    }
  }
  // One chunk: gpipe, 1f1b, zb_h1; two: zb_v; all: interleaved, looped_bfs.
  EXPECT_EQ(cells, 4 * 4 * (3 + 1 + 3 + 3));
}

// What is predicted of a schedule does not depend on them.
TEST(UnshardsTest, TakeNoTimeInAPrediction) {
  const Schedule schedule = Named("zb_v", {2, 2, 4});
  ScheduleCosts costs;
  costs.stages.resize(4);
  const auto plain = PredictSchedule(schedule, costs);
  const auto whole = PredictSchedule(WithUnshards(schedule, 1), costs);
  ASSERT_TRUE(plain.ok() && whole.ok());
  EXPECT_EQ(whole->step, plain->step);
  EXPECT_EQ(whole->devices[0].size(), plain->devices[0].size());
}

TEST(UnshardsTest, OfAScheduleOfOnesOwnAreChecked) {
  const std::pair<std::string, std::string> wrong[] = {
      {"U F0 B0 R\nF0 B0",
       "device 1 has F0 of stage 1, whose parameters are "
       "not there: U must stand before it"},
      {"U F0 R B0\nU F0 B0 R", "device 0 has B0 of stage 0, whose parameters"},
      {"U F0 B0\nU F0 B0 R", "device 0 never frees the parameters of stage 0"},
      {"U U F0 B0 R\nU F0 B0 R", "U of stage 0, whose parameters are there"},
      {"R U F0 B0 R\nU F0 B0 R", "R of stage 0, whose parameters are not"},
      {"U0 F0 B0 R\nU F0 B0 R", "'U0' is no action"},
      {"U F B0 R\nU F0 B0 R", "'F' is no action"},
  };
  for (const auto& [text, what] : wrong) {
    SCOPED_TRACE(text);
    const auto read = ParseSchedule("own", text);
    const absl::Status status =
        read.ok() ? ValidateSchedule(*read).status() : read.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(what));
  }
  ScheduleLimits limits;
  limits.channel_capacity = 2;
  limits.max_unsharded_stages = 1;
  EXPECT_THAT(
      ValidateSchedule(WithUnshards(Named("zb_v", {2, 2, 4}), 2), limits)
          .status()
          .message(),
      HasSubstr(
          "with which it has the parameters of 2 stages, but may have 1"));
  std::vector<int> peaks;
  EXPECT_TRUE(CheckUnshards(Named("1f1b", {2, 1, 3}), 1, &peaks).ok());
  EXPECT_THAT(peaks, ElementsAre(0, 0));
}

}  // namespace
}  // namespace tandem
