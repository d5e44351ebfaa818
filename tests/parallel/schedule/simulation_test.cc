// Which action waits for which, and what follows from it alone.

#include "parallel/schedule/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/validator.h"

namespace tandem::simulation_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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
  EXPECT_THAT(ForwardActions(schedule, 0),
              ElementsAre(Action{ActionKind::kForward, 0, 0},
                          Action{ActionKind::kForward, 0, 1},
                          Action{ActionKind::kForward, 2, 0},
                          Action{ActionKind::kForward, 2, 1}));
}

// Whatever is wrong with a schedule, the validator finds it.

Schedule Make(const std::string& name, int devices, int microbatches,
              int chunks = 1) {
  return *MakeSchedule(name, {devices, chunks, microbatches});
}

std::string ErrorOf(const Schedule& schedule,
                    const ScheduleLimits& limits = {}) {
  return std::string(ValidateSchedule(schedule, limits).status().message());
}

TEST(ScheduleValidator, ARendezvousDeadlocksOneFOneB) {
  const Schedule schedule = Make("1f1b", 4, 8);
  EXPECT_TRUE(ValidateSchedule(schedule, {1, 0}).ok());
  EXPECT_THAT(ErrorOf(schedule, {0, 0}),
              HasSubstr("it does not end: device 0 at F"));
}

TEST(ScheduleValidator, MemoryIsBounded) {
  EXPECT_TRUE(ValidateSchedule(Make("1f1b", 4, 8), {1, 4}).ok());
  EXPECT_THAT(ErrorOf(Make("gpipe", 4, 8), {1, 4}),
              HasSubstr("device 0 has 5 activations after F4 of stage 0, but "
                        "may have 4"));
}

TEST(ScheduleValidator, StagesAreOnOneDeviceEach) {
  Schedule schedule = Make("1f1b", 2, 2);
  schedule.stages_of[1] = {0};
  EXPECT_THAT(ErrorOf(schedule), HasSubstr("stage 0 is on 2 devices"));
  schedule.stages_of[1] = {5};
  EXPECT_THAT(ErrorOf(schedule), HasSubstr("there is no stage 5"));
  schedule.stages_of.pop_back();
  EXPECT_THAT(ErrorOf(schedule), HasSubstr("for each device"));
}

TEST(ScheduleValidator, ActionsAreOnTheirDevice) {
  Schedule schedule = Make("1f1b", 2, 2);
  schedule.actions[0][0].stage = 1;
  EXPECT_THAT(ErrorOf(schedule),
              HasSubstr("device 0 has F0 of stage 1, which it cannot do"));
  schedule.actions[0][0] = {ActionKind::kForward, 0, 2};
  EXPECT_THAT(ErrorOf(schedule), HasSubstr("there are 2 microbatches"));
}

TEST(ScheduleValidator, BackwardIsWholeOrInBothParts) {
  Schedule schedule = Make("zb_h1", 2, 2);
  schedule.actions[0].pop_back();
  EXPECT_THAT(ErrorOf(schedule), HasSubstr("its parts 1 and 0 times"));
  schedule.actions[0].push_back({ActionKind::kBackward, 0, 1});
  EXPECT_THAT(ErrorOf(schedule), HasSubstr("either whole or in both parts"));
}

// One wrong number, at once: 128 stages of 1,048,575 microbatches would take 2
// GB.
TEST(ScheduleValidator, ANumberThatIsFarTooLargeIsNamed) {
  Schedule schedule = Make("1f1b", 128, 2);
  schedule.microbatches = (1 << 20) - 1;
  schedule.actions[3][1].microbatch = schedule.microbatches - 1;
  EXPECT_THAT(ErrorOf(schedule),
              HasSubstr("128 stages and 1048575 microbatches (of which "
                        "F1048574 of stage 3 is the last) need 268435200 "
                        "actions at least, but there are 512"));
}

// Every change of every valid schedule: dropped and doubled actions are always
// found; swapped neighbours are either found, or still a schedule that ends
// with everything done in order.
class Mutations : public testing::Test {
 protected:
  void Check(const Schedule& mutant, bool must_fail) {
    const auto facts = ValidateSchedule(mutant);
    if (!facts.ok()) {
      ++found_;
      return;
    }
    ++passed_;
    EXPECT_FALSE(must_fail) << ToString(mutant);
    ScheduleCosts costs;
    costs.stages.resize(mutant.stages);
    const auto times = PredictSchedule(mutant, costs);  // ends, or CHECKs
    ExpectInOrder(*times);
  }

  // By the clock, not by the validator's own rules.
  static void ExpectInOrder(const SchedulePrediction& times) {
    for (const auto& device : times.devices) {
      for (size_t i = 1; i < device.size(); ++i) {
        EXPECT_GE(device[i].begin, device[i - 1].end);
      }
    }
    for (const auto& device : times.devices) {
      for (const TimedAction& each : device) ExpectAfterItsNeeds(times, each);
    }
  }

  static void ExpectAfterItsNeeds(const SchedulePrediction& times,
                                  const TimedAction& timed) {
    const bool forward = timed.action.kind == ActionKind::kForward;
    for (const auto& device : times.devices) {
      for (const TimedAction& other : device) {
        if (other.action.microbatch != timed.action.microbatch) continue;
        const bool feeds =
            forward ? other.action.kind == ActionKind::kForward &&
                          other.action.stage == timed.action.stage - 1
                    : other.action.kind == ActionKind::kForward &&
                          other.action.stage == timed.action.stage;
        if (feeds) {
          EXPECT_LE(other.end, timed.begin);
        }
      }
    }
  }

  int found_ = 0;
  int passed_ = 0;
};

TEST_F(Mutations, NothingInvalidPasses) {
  for (const std::string& name : ScheduleNames()) {
    const int chunks = name == "zb_v" || name == "interleaved_1f1b" ? 2 : 1;
    const Schedule valid = Make(name, 3, 6, chunks);
    for (int device = 0; device < valid.devices(); ++device) {
      const size_t count = valid.actions[device].size();
      for (size_t i = 0; i < count; ++i) {
        Schedule dropped = valid;
        dropped.actions[device].erase(dropped.actions[device].begin() + i);
        Check(dropped, /*must_fail=*/true);
        Schedule doubled = valid;
        doubled.actions[device].insert(doubled.actions[device].begin() + i,
                                       valid.actions[device][i]);
        Check(doubled, /*must_fail=*/true);
        for (size_t j = i + 1; j < count; ++j) {
          Schedule swapped = valid;
          std::swap(swapped.actions[device][i], swapped.actions[device][j]);
          Check(swapped, /*must_fail=*/false);
        }
      }
    }
  }
  std::cout << found_ << " broken schedules found, " << passed_
            << " changed ones still valid\n";
  EXPECT_GT(found_, 3000);
  EXPECT_GT(passed_, 50);
}

}  // namespace
}  // namespace tandem::simulation_test
