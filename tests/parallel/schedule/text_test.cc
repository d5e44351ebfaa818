#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/drawing.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/simulation.h"
#include "parallel/schedule/validator.h"

namespace tandem::text_test {
namespace {

using testing::HasSubstr;

TEST(ScheduleText, ReadsWhatIsWritten) {
  for (const std::string& name : ScheduleNames()) {
    for (int chunks : {1, 2}) {
      const auto schedule = MakeSchedule(name, {3, chunks, 6});
      if (!schedule.ok()) continue;
      const auto read = ParseSchedule(name, ToString(*schedule));
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->actions, schedule->actions);
      EXPECT_EQ(read->stages_of, schedule->stages_of);
      EXPECT_EQ(read->stages, schedule->stages);
      EXPECT_EQ(read->microbatches, schedule->microbatches);
    }
  }
}

// A stage on a device of another number is written down.
TEST(ScheduleText, KeepsTheStagesOfEachDevice) {
  Schedule schedule = *MakeSchedule("1f1b", {2, 1, 2});
  std::swap(schedule.actions[0], schedule.actions[1]);
  std::swap(schedule.stages_of[0], schedule.stages_of[1]);
  EXPECT_EQ(ToString(schedule), "1F0 1B0 1F1 1B1\n0F0 0F1 0B0 0B1");
  const auto read = ParseSchedule("mine", ToString(schedule));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->actions, schedule.actions);
  EXPECT_EQ(read->stages_of, schedule.stages_of);
}

TEST(ScheduleText, SkipsCommentsAndEmptyLines) {
  const auto read = ParseSchedule("mine",
                                  "# two devices\n\n F0 F1\tB0 B1 # first\r\n"
                                  "F0 B0 F1 B1");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToString(*read), "F0 F1 B0 B1\nF0 B0 F1 B1");
  EXPECT_TRUE(ValidateSchedule(*read).ok());
}

TEST(ScheduleText, NamesTheWordThatIsWrong) {
  const auto error = [](const std::string& text) {
    return std::string(ParseSchedule("mine", text).status().message());
  };
  for (const char* word :
       {"G0", "F", "F-1", "FF0", "12", "F0x", "99999999F0"}) {
    EXPECT_THAT(error(std::string("F0 B0\nF0 ") + word),
                HasSubstr("mine, line 2: '" + std::string(word) + "'"));
  }
  EXPECT_THAT(error("# nothing\n"), HasSubstr("has no actions"));
}

TEST(ScheduleDrawing, ShowsActionsAndIdleTime) {
  const auto schedule = MakeSchedule("gpipe", {2, 1, 2});
  ScheduleCosts costs;
  costs.stages.assign(2, {1, 1, 1});
  const auto times = PredictSchedule(*schedule, costs);
  EXPECT_EQ(DrawText(*times, 27),
            "device 0   F0|F1|.........B1   |B0   |\n"
            "device 1   ...F0|F1|B1   |B0   |......\n"
            "time       0  1  2  3  4  5  6  7  8  9\n"
            "F forward; B backward; dots: waiting\n");
  const std::string svg = DrawSvg("two & two", *times);
  EXPECT_THAT(svg, testing::StartsWith("<svg"));
  EXPECT_THAT(svg, HasSubstr("two &amp; two"));
  // What a page gives colours of its own.
  for (const char* each : {"ground", "waiting", "words"}) {
    EXPECT_THAT(svg, HasSubstr(absl::StrCat("class=\"", each, "\"")));
  }
  EXPECT_THAT(svg, testing::Not(HasSubstr("weights")));
  EXPECT_THAT(svg, HasSubstr("step 9, of which 3 bubble (50.0 % of the"));
  EXPECT_THAT(svg, HasSubstr(">waiting</text>"));
  EXPECT_THAT(svg, HasSubstr(">7</text>"));
  EXPECT_THAT(DrawTrace(*times), HasSubstr("\"1F1\""));
}

TEST(SchedulePrediction, CountsTransfersAndChecksCosts) {
  const auto schedule = MakeSchedule("1f1b", {2, 1, 1});
  ScheduleCosts costs;
  costs.stages.assign(2, {1, 1, 1});
  costs.transfer = 0.5;
  EXPECT_EQ(PredictSchedule(*schedule, costs)->step, 1 + 0.5 + 3 + 0.5 + 2);
  costs.stages.pop_back();
  EXPECT_EQ(PredictSchedule(*schedule, costs).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::text_test
