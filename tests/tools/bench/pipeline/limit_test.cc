#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parallel/schedule/schedules.h"
#include "tools/bench/pipeline/run.h"

namespace tandem::limit_test {
namespace {

double Limit(const std::string& name, const ScheduleShape& shape,
             const StageCost& each) {
  const auto schedule = MakeSchedule(name, shape);
  return *PipelineLimit(*schedule,
                        std::vector<StageCost>(schedule->stages, each));
}

TEST(PipelineLimit, IsTheFormulasOfThePapers) {
  for (int m : {2, 4, 8}) {
    const double expected = m / (m + 2 - 1.0);
    EXPECT_NEAR(Limit("gpipe", {2, 1, m}, {1, 1, 1}), expected, 1e-12);
    EXPECT_NEAR(Limit("1f1b", {2, 1, m}, {1, 2, 0.5}), expected, 1e-12);
    EXPECT_NEAR(Limit("interleaved_1f1b", {2, 2, m}, {1, 1, 1}),
                2 * m / (2 * m + 2 - 1.0), 1e-12);
    // ZB-H1's bubble is at most (S - 1)(F + B - W).
    EXPECT_GE(Limit("zb_h1", {2, 1, m}, {1, 1, 1}), 3 * m / (3 * m + 1.0));
    EXPECT_GT(Limit("zb_h1", {2, 1, m}, {1, 1, 1}), expected);
  }
}

TEST(PipelineLimit, FallsWithStagesThatDiffer) {
  const auto schedule = MakeSchedule("1f1b", {2, 1, 4});
  const std::vector<StageCost> costs = {{1, 1, 1}, {2, 2, 2}};
  const std::vector<StageCost> even = Evened(costs);
  EXPECT_EQ(even[0].forward, 1.5);
  EXPECT_EQ(even[1].backward_weight, 1.5);
  EXPECT_NEAR(*PipelineLimit(*schedule, even), 0.8, 1e-12);
  // The slower stage never waits but for the first forward and the last
  // backward of the other: 36 / 2 of 27.
  EXPECT_NEAR(*PipelineLimit(*schedule, costs), 18 / 27.0, 1e-12);
}

TEST(PipelineLimit, HoldsForAwkwardShapes) {
  for (int s : {1, 3, 5, 7}) {
    for (int m : {1, 2, 3, 7, 11}) {  // fewer than stages, too
      const double expected = m / (m + s - 1.0);
      EXPECT_NEAR(Limit("gpipe", {s, 1, m}, {1, 1, 1}), expected, 1e-12);
      EXPECT_NEAR(Limit("1f1b", {s, 1, m}, {0.3, 0.7, 0.1}), expected, 1e-12);
    }
    EXPECT_NEAR(Limit("interleaved_1f1b", {s, 3, 2 * s}, {1, 1, 1}),
                6 * s / (6 * s + s - 1.0), 1e-12);
  }
}

TEST(PipelineLimit, NeedsTheTimesOfEveryStage) {
  const auto schedule = MakeSchedule("1f1b", {3, 1, 4});
  EXPECT_EQ(PipelineLimit(*schedule, {{1, 1, 1}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SplitStepTime(*schedule, {40, 36, 1, {{1, 1, 1}, {2, 2, 2}}})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Evened, KeepsTheSumOfEachPart) {
  const std::vector<StageCost> even =
      Evened({{1, 2, 0}, {0.5, 0, 4}, {3, 7, 0.5}});
  ASSERT_EQ(even.size(), 3u);
  for (const StageCost& each : even) {
    EXPECT_NEAR(each.forward, 1.5, 1e-12);
    EXPECT_NEAR(each.backward_input, 3, 1e-12);
    EXPECT_NEAR(each.backward_weight, 1.5, 1e-12);
  }
  const std::vector<StageCost> one = Evened({{0.1, 0.2, 0.3}});
  EXPECT_EQ(one[0].forward, 0.1);
  EXPECT_EQ(one[0].backward_weight, 0.3);
}

TEST(SplitStepTime, OneDeviceHasNoBubble) {
  const auto schedule = MakeSchedule("gpipe", {1, 1, 7});
  const StepParts parts = *SplitStepTime(*schedule, {50, 30, 2, {{1, 2, 3}}});
  EXPECT_EQ(parts.whole, 30);
  EXPECT_NEAR(parts.microbatching, 7 * 6 + 2 - 30, 1e-9);
  EXPECT_NEAR(parts.bubble, 0, 1e-9);
  EXPECT_NEAR(parts.imbalance, 0, 1e-9);
  EXPECT_NEAR(parts.rest, 50 - 44, 1e-9);
}

TEST(SplitStepTime, EqualStagesHaveNoImbalance) {
  const auto schedule = MakeSchedule("1f1b", {3, 1, 5});
  const StageCost each = {0.3, 0.7, 0.1};
  const StepParts parts =
      *SplitStepTime(*schedule, {9, 15, 0, {each, each, each}});
  EXPECT_NEAR(parts.bubble, 1.1 * 2, 1e-9);  // (S - 1)(F + B)
  EXPECT_NEAR(parts.imbalance, 0, 1e-9);
  EXPECT_NEAR(parts.rest, 9 - 1.1 * 7, 1e-9);
}

TEST(SplitStepTime, AddUpWhateverTheyAre) {
  for (const char* name : {"1f1b", "zb_h1", "interleaved_1f1b", "zb_v"}) {
    const int chunks = name[0] == '1' || name[3] == 'h' ? 1 : 2;
    const auto schedule = MakeSchedule(name, {3, chunks, 6});
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    std::vector<StageCost> stages;
    for (int i = 0; i < schedule->stages; ++i) {
      stages.push_back({0.1 + i, 0.2 * i, 0.3});
    }
    const StepParts parts = *SplitStepTime(*schedule, {91, 47, 0.7, stages});
    EXPECT_NEAR(parts.whole + parts.microbatching + parts.bubble +
                    parts.imbalance + parts.rest,
                91, 1e-9)
        << name;
    EXPECT_EQ(parts.step, 91);
    EXPECT_GT(parts.bubble, 0) << name;
    EXPECT_GT(parts.imbalance, 0) << name;
  }
}

TEST(SplitStepTime, AddUpToTheStep) {
  const auto schedule = MakeSchedule("1f1b", {2, 1, 4});
  const StepParts parts =
      *SplitStepTime(*schedule, {40, 36, 1, {{1, 1, 1}, {2, 2, 2}}});
  EXPECT_EQ(parts.whole, 18);
  EXPECT_NEAR(parts.microbatching, 18 + 1 - 18, 1e-9);
  EXPECT_NEAR(parts.bubble, 18 / 0.8 - 18, 1e-9);
  EXPECT_NEAR(parts.imbalance, 27 - 22.5, 1e-9);
  EXPECT_NEAR(parts.rest, 40 - 27 - 1, 1e-9);
}

TEST(MicrobatchOverhead, IsWhatTheLimitDoesNotExplain) {
  // 20 ms on each core, 25 with the bubble.
  EXPECT_NEAR(MicrobatchOverhead(29, 40, 0.8, 2, 4), 1, 1e-12);
  // All of the step is theory.
  EXPECT_NEAR(MicrobatchOverhead(21 / 3 / 0.7, 21, 0.7, 3, 7), 0, 1e-12);
  // Faster than theory: small microbatches fit in a cache.
  EXPECT_NEAR(MicrobatchOverhead(12, 21, 0.5, 3, 1), -2, 1e-12);
}

}  // namespace
}  // namespace tandem::limit_test
