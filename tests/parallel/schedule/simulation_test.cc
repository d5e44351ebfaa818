// Which action waits for which, and what follows from it alone.

#include "parallel/schedule/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/schedules.h"

namespace tandem::simulation_test {
namespace {

using testing::ElementsAre;

Schedule Parse(const std::string& text) { return *ParseSchedule("own", text); }

// "F1 B2": whatever the microbatch is.
std::string PrerequisitesText(ActionKind kind, int stage, int stages) {
  return absl::StrJoin(ActionPrerequisites({kind, stage, 0}, stages), " ",
                       [](std::string* out, const Prerequisite& each) {
                         absl::StrAppend(out, each.is_forward ? "F" : "B",
                                         each.stage);
                       });
}

// "0F1" for each action, and what its device then keeps: "0F1:2".
std::string DoneText(const Simulation& simulation) {
  return absl::StrJoin(
      simulation.done, " ", [](std::string* out, const SimulatedAction& each) {
        absl::StrAppend(out, ToString(each.action, true), ":", each.kept);
      });
}

TEST(Simulation, EveryKindHasItsPrerequisites) {
  EXPECT_EQ(PrerequisitesText(ActionKind::kForward, 0, 3), "");
  EXPECT_EQ(PrerequisitesText(ActionKind::kForward, 2, 3), "F1");
  for (const ActionKind kind :
       {ActionKind::kBackward, ActionKind::kBackwardInput}) {
    EXPECT_EQ(PrerequisitesText(kind, 0, 3), "B1 F0");
    EXPECT_EQ(PrerequisitesText(kind, 2, 3), "F2");
  }
  EXPECT_EQ(PrerequisitesText(ActionKind::kBackwardWeight, 1, 3), "F1 B1");
}

TEST(Simulation, ResultsGoToTheNeighbour) {
  EXPECT_EQ(ReceivingStage({ActionKind::kForward, 0, 0}, 2), 1);
  EXPECT_EQ(ReceivingStage({ActionKind::kForward, 1, 0}, 2), -1);
  EXPECT_EQ(ReceivingStage({ActionKind::kBackward, 1, 0}, 2), 0);
  EXPECT_EQ(ReceivingStage({ActionKind::kBackwardInput, 0, 0}, 2), -1);
  EXPECT_EQ(ReceivingStage({ActionKind::kBackwardWeight, 1, 0}, 2), -1);
}

TEST(Simulation, EachActionComesAfterWhatItNeeds) {
  const Simulation simulation = Simulate(Parse("F0 F1 B0 B1\n"
                                               "F0 I0 F1 W0 B1"),
                                         {2, {}, 0});
  EXPECT_TRUE(simulation.stuck.empty());
  EXPECT_EQ(DoneText(simulation),
            "0F0:1 0F1:2 1F0:1 1I0:1 1F1:2 1W0:1 1B1:0 0B0:1 0B1:0");
}

TEST(Simulation, TimesGoByDurationsAndTransfers) {
  const auto duration = [](const Action& action) {
    return IsForward(action.kind) ? 1.0 : 2.0;
  };
  const Simulation simulation = Simulate(Parse("F0 F1 B0 B1\n"
                                               "F0 B0 F1 B1"),
                                         {2, duration, 0.5});
  std::vector<std::string> times;
  for (const SimulatedAction& each : simulation.done) {
    times.push_back(absl::StrCat(ToString(each.action, true), " ", each.begin,
                                 " to ", each.end));
  }
  EXPECT_THAT(times,
              ElementsAre("0F0 0 to 1", "0F1 1 to 2", "1F0 1.5 to 2.5",
                          "1B0 2.5 to 4.5", "1F1 4.5 to 5.5", "1B1 5.5 to 7.5",
                          "0B0 5 to 7", "0B1 8 to 10"));
}

TEST(Simulation, AFullChannelHoldsItsSenderBack) {
  const Schedule schedule = Parse(
      "F0 F1 B0 B1\n"
      "F0 F1 B0 B1");
  EXPECT_EQ(DoneText(Simulate(schedule, {2, {}, 0})),
            "0F0:1 0F1:2 1F0:1 1F1:2 1B0:1 1B1:0 0B0:1 0B1:0");
  EXPECT_EQ(DoneText(Simulate(schedule, {1, {}, 0})),
            "0F0:1 1F0:1 0F1:2 1F1:2 1B0:1 0B0:1 1B1:0 0B1:0");
}

TEST(Simulation, WhatCannotGoOnSaysWhatIsMissing) {
  const Simulation simulation = Simulate(Parse("B0 F0\n"
                                               "F0 B0"),
                                         {1, {}, 0});
  EXPECT_TRUE(simulation.done.empty());
  ASSERT_EQ(simulation.stuck.size(), 2U);
  EXPECT_EQ(simulation.stuck[0].missing->stage, 1);
  EXPECT_FALSE(simulation.stuck[0].missing->is_forward);
  EXPECT_EQ(simulation.stuck[1].device, 1);
  EXPECT_TRUE(simulation.stuck[1].missing->is_forward);
  // Both would hand over, and neither would take.
  const Simulation without = Simulate(*MakeSchedule("1f1b", {4, 1, 8}), {});
  ASSERT_FALSE(without.stuck.empty());
  EXPECT_FALSE(without.stuck[0].missing.has_value());
}

TEST(Schedule, ListsOfStages) {
  const Schedule schedule = Parse(
      "0F0 2F0 0F1 2F1 2B0 0B0 2B1 0B1\n"
      "1F0 1F1 1I0 1I1 1W1 1W0");
  EXPECT_THAT(DevicesOfStages(schedule), ElementsAre(0, 1, 0));
  EXPECT_THAT(ActionsByStage(schedule, 1)[2],
              ElementsAre(Action{ActionKind::kForward, 2, 0},
                          Action{ActionKind::kBackward, 2, 0}));
  EXPECT_THAT(LastGradients(schedule, 2),
              ElementsAre(Action{ActionKind::kBackward, 0, 1},
                          Action{ActionKind::kBackwardWeight, 1, 0},
                          Action{ActionKind::kBackward, 2, 1}));
  EXPECT_THAT(ForwardsOf(schedule, 0),
              ElementsAre(Action{ActionKind::kForward, 0, 0},
                          Action{ActionKind::kForward, 0, 1},
                          Action{ActionKind::kForward, 2, 0},
                          Action{ActionKind::kForward, 2, 1}));
}

}  // namespace
}  // namespace tandem::simulation_test
