// Schedules against the tables and formulas of the papers that they are from.

#include "parallel/schedule/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "core/testing/statuses.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/simulation.h"
#include "parallel/schedule/validator.h"

namespace tandem::schedules_test {
namespace {

using testing::Each;
using testing::HasSubstr;

Schedule Make(const std::string& name, int devices, int microbatches,
              int chunks = 1) {
  const auto made = MakeSchedule(name, {devices, chunks, microbatches});
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : Schedule();
}

double BubbleOf(const Schedule& schedule, const StageCost& cost) {
  ScheduleCosts costs;
  costs.stages.assign(schedule.stages, cost);
  return PredictSchedule(schedule, costs)->bubble;
}

TEST(Schedules, GPipesTable) {
  // 1811.06965, figure 2c.
  EXPECT_EQ(ToString(Make("gpipe", 4, 4)),
            "F0 F1 F2 F3 B3 B2 B1 B0\n"
            "F0 F1 F2 F3 B3 B2 B1 B0\n"
            "F0 F1 F2 F3 B3 B2 B1 B0\n"
            "F0 F1 F2 F3 B3 B2 B1 B0");
}

TEST(Schedules, OneFOneBsTable) {
  // 2104.04473, figure 3 (microbatches 1 to 8 there).
  EXPECT_EQ(ToString(Make("1f1b", 4, 8)),
            "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7\n"
            "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7\n"
            "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7\n"
            "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

TEST(Schedules, InterleavedTable) {
  // 2104.04473, figure 4: 4 devices, 2 chunks, 8 microbatches; device 0 and 3.
  const Schedule schedule = Make("interleaved_1f1b", 4, 8, 2);
  const std::string text = ToString(schedule);
  EXPECT_THAT(text, testing::StartsWith(
                        "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 "
                        "4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 0B2 0B3 4B4 4B5 "
                        "4B6 4B7 0B4 0B5 0B6 0B7\n"));
  EXPECT_THAT(text, testing::EndsWith(
                        "\n3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 "
                        "3B0 3F5 3B1 3F6 3B2 3F7 3B3 7F4 7B4 7F5 7B5 7F6 7B6 "
                        "7F7 7B7 3B4 3B5 3B6 3B7"));
}

TEST(Schedules, ZeroBubbleH1sTable) {
  // 2401.10241, figure 3: the last device puts 3 weights' parts off.
  EXPECT_EQ(ToString(Make("zb_h1", 4, 4)),
            "F0 F1 F2 F3 I0 W0 I1 W1 I2 W2 I3 W3\n"
            "F0 F1 F2 I0 F3 I1 W0 I2 W1 I3 W2 W3\n"
            "F0 F1 I0 F2 I1 F3 I2 W0 I3 W1 W2 W3\n"
            "F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3");
}

TEST(Schedules, BubblesOfThePapers) {
  const StageCost cost = {1, 1.25, 0.75};
  const double backward = cost.backward_input + cost.backward_weight;
  for (int devices : {1, 2, 3, 4, 7}) {
    for (int factor : {1, 2, 5}) {
      const int m = devices * factor;
      const double fill = (devices - 1) * (cost.forward + backward);
      EXPECT_NEAR(BubbleOf(Make("gpipe", devices, m), cost), fill, 1e-9);
      EXPECT_NEAR(BubbleOf(Make("1f1b", devices, m), cost), fill, 1e-9);
      for (int chunks : {2, 3}) {
        // A chunk is 1 / chunks of a device's layers.
        EXPECT_NEAR(
            BubbleOf(Make("interleaved_1f1b", devices, m, chunks), cost), fill,
            1e-9)
            << devices << " " << m << " " << chunks;
      }
      EXPECT_LE(BubbleOf(Make("zb_h1", devices, m), cost),
                (devices - 1) * (cost.forward + cost.backward_input -
                                 cost.backward_weight) +
                    1e-9)
          << devices << " " << m;
    }
  }
}

TEST(Schedules, ZeroBubbleVHasAlmostNone) {
  for (int devices : {2, 3, 4, 7}) {
    const Schedule schedule = Make("zb_v", devices, 4 * devices, 2);
    // Equal parts: what is left is the way of the first microbatch.
    EXPECT_LE(BubbleOf(schedule, {1, 1, 1}), devices - 1 + 1e-9) << devices;
  }
}

TEST(Schedules, FractionOfGPipe) {
  // (S - 1) / (M + S - 1)
  const Schedule schedule = Make("gpipe", 4, 8);
  ScheduleCosts costs;
  costs.stages.assign(4, {1, 1, 1});
  EXPECT_NEAR(PredictSchedule(schedule, costs)->idle, 3.0 / 11, 1e-12);
}

TEST(Schedules, PeakActivations) {
  const auto peak = [](const Schedule& schedule) {
    return ValidateSchedule(schedule)->peak_activations;
  };
  using testing::ElementsAre;
  EXPECT_THAT(peak(Make("gpipe", 4, 8)), ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(peak(Make("1f1b", 4, 8)), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(peak(Make("zb_h1", 4, 8)), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(peak(Make("zb_v", 4, 8, 2)), ElementsAre(8, 8, 8, 8));
}

TEST(Schedules, AllAreValidWhateverTheNumbers) {
  int cells = 0;
  for (const std::string& name : ScheduleNames()) {
    for (int devices = 1; devices <= 7; ++devices) {
      for (int microbatches = 1; microbatches <= 16; ++microbatches) {
        for (int chunks : {1, 2, 3}) {
          const auto made = MakeSchedule(name, {devices, chunks, microbatches});
          if (!made.ok()) continue;
          const auto capacity = LeastChannelCapacity(*made);
          ASSERT_TRUE(capacity.ok())
              << devices << " devices, " << chunks << " chunks, "
              << microbatches << " microbatches: " << capacity.status();
          // Only breadth first sends a whole chunk ahead of its receiver.
          EXPECT_LE(*capacity, name == "looped_bfs"
                                   ? std::max(1, microbatches - devices + 1)
                               : name == "zb_v" || chunks > 1 ? 2
                                                              : 1)
              << ToString(*made);
          ++cells;
        }
      }
    }
  }
  EXPECT_EQ(cells,
            7 * 16 * (1 + 1 + 3 + 1 + 1) + 3 * (16 + 8 + 5 + 4 + 3 + 2 + 2));
}

TEST(Schedules, WhatMakesNoSenseIsRefused) {
  const auto error = [](const std::string& name, int devices, int chunks,
                        int microbatches) {
    return std::string(
        MakeSchedule(name, {devices, chunks, microbatches}).status().message());
  };
  EXPECT_THAT(error("gpipe", 2, 2, 4), HasSubstr("has 1 stage(s) a device"));
  EXPECT_THAT(error("zb_v", 2, 1, 4), HasSubstr("has 2 stage(s) a device"));
  EXPECT_THAT(error("interleaved_1f1b", 4, 2, 6),
              HasSubstr("no multiple of 4"));
  EXPECT_THAT(error("1f1b", 0, 1, 1), HasSubstr("at least one of each"));
  EXPECT_THAT(error("2f2b", 1, 1, 1), HasSubstr("gpipe, 1f1b"));
  // Not a second of work, nor a byte.
  for (const std::string& name : ScheduleNames()) {
    EXPECT_THAT(error(name, 100000, name == "zb_v" ? 2 : 1, 2000000000),
                HasSubstr("are more than the 2097152 forwards"))
        << name;
  }
}

TEST(ScheduleChoice, ChunksFollowTheSchedule) {
  EXPECT_EQ(UsualChunks("1f1b"), 1);
  EXPECT_EQ(UsualChunks("looped_bfs"), 2);
  EXPECT_EQ(UsualChunks("interleaved_1f1b", 4), 2);
  EXPECT_EQ(UsualChunks("interleaved_1f1b", 3), 1);
  EXPECT_EQ(UsualChunks("zb_v", 3), 2);  // which zb_v then refuses
  EXPECT_EQ(UsualChunks("gpipe", 4), 1);
}

TEST(ScheduleChoice, ReadsFiles) {
  EXPECT_TRUE(IsScheduleFile("./mine"));
  EXPECT_FALSE(IsScheduleFile("1f1b"));
  const std::string path = testing::TempDir() + "/schedule.txt";
  std::ofstream(path) << "F0 B0\nF0 B0\n";
  const auto schedule = ReadScheduleFile(path);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->stages, 2);
  const auto missing = ReadScheduleFile("/no/such/file");
  EXPECT_THAT(missing.status(),
              StatusIs(absl::StatusCode::kNotFound, "/no/such/file"));
}

// A device has no end.
TEST(ScheduleChoice, ReadsNothingButFiles) {
  const std::string pipe = testing::TempDir() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path :
       {std::string("/dev/zero"), pipe, testing::TempDir() + "/"}) {
    const absl::Status status = ReadScheduleFile(path).status();
    EXPECT_THAT(status, InvalidArgument(path + " is no regular file"));
  }
  const std::string large = testing::TempDir() + "/large.txt";
  std::ofstream(large) << "F0 B0\n";
  ASSERT_EQ(truncate(large.c_str(), off_t{1} << 40), 0);
  EXPECT_THAT(ReadScheduleFile(large).status(), Says("a schedule at most"));
}

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
}  // namespace tandem::schedules_test
