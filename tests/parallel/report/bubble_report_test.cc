// With pipeline_times' and pipeline_advice's: timelines of known costs give
// these costs, their bubbles, and the advice that they call for.

#include "parallel/report/bubble_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/testing/statuses.h"
#include "parallel/report/pipeline_times.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/simulation.h"

namespace tandem::bubble_report_test {
namespace {

using testing::HasSubstr;

constexpr double kMs = 1e-3;

StageCost InMs(double forward, double input, double weight) {
  return {forward * kMs, input * kMs, weight * kMs};
}

// A step as it is predicted: what is between two actions is waited for.
PipelineTimeline TimelineOf(const Schedule& schedule,
                            const ScheduleCosts& costs) {
  const auto at = [](double seconds) {
    return ActionTime::Clock::time_point() +
           std::chrono::duration_cast<ActionTime::Clock::duration>(
               std::chrono::duration<double>(seconds));
  };
  PipelineTimeline timeline;
  const auto predicted = PredictSchedule(schedule, costs);
  for (const auto& actions : predicted->devices) {
    double before = 0;
    auto& device = timeline.emplace_back();
    for (const TimedAction& each : actions) {
      device.push_back({each.action, at(before), at(each.begin), at(each.end),
                        at(each.end)});
      before = each.end;
    }
  }
  return timeline;
}

PipelineTimes AwaitTimes(const Schedule& schedule, const ScheduleCosts& costs,
                         int steps = 3) {
  PipelineTimes times(schedule, /*skipped=*/0);
  for (int i = 0; i < steps; ++i) times.Add(TimelineOf(schedule, costs));
  return times;
}

void ExpectCosts(const std::vector<StageCost>& costs,
                 const std::vector<StageCost>& expected) {
  ASSERT_EQ(costs.size(), expected.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    EXPECT_NEAR(costs[i].forward, expected[i].forward, 1e-7);
    EXPECT_NEAR(costs[i].backward_input, expected[i].backward_input, 1e-7);
    EXPECT_NEAR(costs[i].backward_weight, expected[i].backward_weight, 1e-7);
  }
}

struct Case {
  std::string schedule;
  ScheduleShape shape;
  ScheduleCosts costs;
};

std::vector<Case> Cases() {
  return {
      {"gpipe", {3, 1, 4}, {{InMs(1, 1, 1), InMs(2, 1, 1), InMs(1, 2, 2)}}},
      {"1f1b", {2, 1, 5}, {{InMs(1, 2, 2), InMs(3, 1, 1)}}},
      {"interleaved_1f1b",
       {2, 2, 4},
       {{InMs(1, 1, 1), InMs(2, 1, 1), InMs(1, 2, 2), InMs(1, 1, 1)}}},
      {"zb_h1", {2, 1, 6}, {{InMs(1, 2, 0.5), InMs(1.5, 1, 2)}}},
      {"zb_v",
       {2, 2, 4},
       {{InMs(1, 2, 1), InMs(2, 1, 3), InMs(1, 2, 1), InMs(1, 1, 2)}}},
  };
}

TEST(PipelineTimes, GivesTheCostsBack) {
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.schedule);
    const Schedule schedule = *MakeSchedule(each.schedule, each.shape);
    const PipelineTimes times = AwaitTimes(schedule, each.costs);
    EXPECT_EQ(times.steps(), 3);
    ExpectCosts(times.StageCosts(), each.costs.stages);
    const auto predicted = PredictSchedule(schedule, each.costs);
    EXPECT_NEAR(times.StepSeconds(), predicted->step, 1e-7);
    for (int d = 0; d < schedule.devices(); ++d) {
      const DeviceTimes& device = times.devices()[d];
      EXPECT_NEAR(device.busy() / 3, predicted->busy[d], 1e-7);
      EXPECT_NEAR(device.busy() + device.input_wait + device.gradient_wait,
                  device.working, 1e-7);
    }
  }
}

TEST(PipelineTimes, DoesNotCountTheFirstSteps) {
  const Schedule schedule = *OneFOneB({2, 1, 2});
  PipelineTimes times(schedule, /*skipped=*/2);
  for (double ms : {90.0, 50.0, 1.0, 3.0}) {
    times.Add(TimelineOf(schedule, {{InMs(ms, ms, ms), InMs(ms, ms, ms)}, 0}));
  }
  EXPECT_EQ(times.steps(), 2);
  ExpectCosts(times.StageCosts(), {InMs(2, 2, 2), InMs(2, 2, 2)});
}

TEST(PipelineTimes, AddsUpOverRanks) {
  const Case test_case = Cases()[1];
  const Schedule schedule = *MakeSchedule(test_case.schedule, test_case.shape);
  const PipelineTimeline all = TimelineOf(schedule, test_case.costs);
  PipelineTimes sum(schedule, 0);
  for (int rank = 0; rank < 2; ++rank) {
    PipelineTimeline own(2);
    own[rank] = all[rank];
    PipelineTimes times(schedule, 0);
    times.Add(own);
    PipelineTimes received(schedule, 0);
    ASSERT_TRUE(received.SetFlat(times.Flatten()).ok());
    sum.Add(received);
  }
  ExpectCosts(sum.StageCosts(), test_case.costs.stages);
  EXPECT_NEAR(sum.StepSeconds(),
              PredictSchedule(schedule, test_case.costs)->step, 1e-7);
  EXPECT_EQ(sum.steps(), 1);
  EXPECT_THAT(sum.SetFlat({1, 2}), Says("but 2 were given"));
}

TEST(PipelineTimes, TellsWhatIsWaitedForAndCopied) {
  const Schedule schedule = *OneFOneB({2, 1, 1});
  const auto at = [](int ms) {
    return ActionTime::Clock::time_point() + std::chrono::milliseconds(ms);
  };
  const ActionKind kForward = ActionKind::kForward;
  const ActionKind kBackward = ActionKind::kBackward;
  PipelineTimes times(schedule, 0);
  times.Add({{{{kForward, 0, 0}, at(0), at(1), at(4), at(6)},
              {{kBackward, 0, 0}, at(6), at(20), at(29), at(30)}},
             {{{kForward, 1, 0}, at(0), at(6), at(10), at(10)},
              {{kBackward, 1, 0}, at(10), at(10), at(18), at(19)}}});
  const DeviceTimes& first = times.devices()[0];
  EXPECT_NEAR(first.input_wait, 1 * kMs, 1e-9);
  EXPECT_NEAR(first.gradient_wait, 14 * kMs, 1e-9);
  EXPECT_NEAR(first.copying, 3 * kMs, 1e-9);
  const DeviceTimes& second = times.devices()[1];
  EXPECT_NEAR(second.input_wait, 6 * kMs, 1e-9);
  EXPECT_NEAR(second.working, 19 * kMs, 1e-9);
  EXPECT_NEAR(second.step, 30 * kMs, 1e-9);
  EXPECT_NEAR(times.MessageSeconds(), 1 * kMs, 1e-9);
}

TEST(BubbleReport, MeasuresWhatIsPredicted) {
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.schedule);
    const Schedule schedule = *MakeSchedule(each.schedule, each.shape);
    const auto report =
        ReportBubbles(schedule, AwaitTimes(schedule, each.costs));
    ASSERT_TRUE(report.ok()) << report.status();
    const auto predicted = PredictSchedule(schedule, each.costs);
    const double bubble = predicted->bubble / predicted->step;
    EXPECT_NEAR(report->predicted, predicted->step, 1e-6);
    EXPECT_NEAR(report->measured_bubble, bubble, 1e-3);
    EXPECT_NEAR(report->predicted_bubble, bubble, 1e-3);
  }
}

TEST(BubbleReport, KnowsThePapersBubbles) {
  const auto ideal = [](const std::string& name, const ScheduleShape& shape) {
    const Schedule schedule = *MakeSchedule(name, shape);
    ScheduleCosts costs;
    for (int s = 0; s < schedule.stages; ++s) {
      costs.stages.push_back(InMs(1 + s, 1 + s, 1 + s));
    }
    return ReportBubbles(schedule, AwaitTimes(schedule, costs))->ideal_bubble;
  };
  EXPECT_NEAR(ideal("gpipe", {3, 1, 4}), 2.0 / 6, 1e-6);
  EXPECT_NEAR(ideal("1f1b", {4, 1, 8}), 3.0 / 11, 1e-6);
  // (S - 1) / v of M + (S - 1) / v.
  EXPECT_NEAR(ideal("interleaved_1f1b", {4, 2, 8}), 1.5 / 9.5, 1e-6);
}

TEST(BubbleReport, IsForAPerson) {
  const Schedule schedule = *OneFOneB({2, 1, 4});
  const ScheduleCosts costs = {{InMs(1.5, 1.25, 1.25), InMs(3, 3, 3)}, 0};
  const auto report = ReportBubbles(schedule, AwaitTimes(schedule, costs));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ("\n" + report->text, R"(
1f1b: 2 stages on 2 devices, 4 microbatches; means of 3 steps

ms a step
device  stages  forward  backward  weights  input wait  gradient wait  copying  idle at end    busy
     0       0     6.00     10.00     0.00        0.00          24.00     0.00         0.00  40.0 %
     1       1    12.00     24.00     0.00        1.50           0.00     0.00         2.50  90.0 %

ms a microbatch
stage  device  forward  backward  together
    0       0     1.50      2.50      4.00
    1       1     3.00      6.00      9.00

step     40.00 ms; predicted from the stages' times: 40.00 ms; if all stages took as long: 32.50 ms
bubble   10.0 % of the step is beyond what the busiest device computes; predicted: 10.0 %; with equal stages: 20.0 %
advice   make the stages more equal (--balance=profile, or the layers by name): stage 1 takes 9.00 ms a microbatch, stage 0 takes 4.00; if all took as long, a step would take 32.50 ms instead of 40.00 (18.8 % less)
)");
}

TEST(BubbleReport, NeedsSteps) {
  const Schedule schedule = *OneFOneB({2, 1, 4});
  EXPECT_EQ(ReportBubbles(schedule, PipelineTimes(schedule)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReportBubbles(*OneFOneB({3, 1, 4}), PipelineTimes(schedule))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

Advice AdviceOn(const std::string& name, const ScheduleShape& shape,
                const std::vector<StageCost>& stages,
                const AdviceLimits& limits) {
  const Schedule schedule = *MakeSchedule(name, shape);
  return ReportBubbles(schedule, AwaitTimes(schedule, {stages, 0}), limits)
      ->advice;
}

TEST(PipelineAdvice, MoveTheCut) {
  const Advice advice =
      AdviceOn("1f1b", {2, 1, 16}, {InMs(1, 1, 1), InMs(3, 3, 3)}, {});
  EXPECT_EQ(advice.kind, AdviceKind::kMoveCut);
  // 16 x 9 + 3 ms; 17 x 6 ms.
  EXPECT_NEAR(advice.gain, 1 - 102.0 / 147, 1e-6);
  EXPECT_THAT(advice.text,
              HasSubstr("the layers by name): stage 1 takes 9.00 ms a "
                        "microbatch, stage 0 takes 3.00"));
  EXPECT_THAT(advice.text,
              HasSubstr("102.00 ms instead of 147.00 (30.6 % less)"));
}

TEST(PipelineAdvice, MoreMicrobatches) {
  AdviceLimits limits;
  limits.layers = 4;
  limits.fixed_part = 0;
  const std::vector<StageCost> stages(4, InMs(1, 1, 1));
  const Advice advice = AdviceOn("zb_h1", {4, 1, 2}, stages, limits);
  EXPECT_EQ(advice.kind, AdviceKind::kMoreMicrobatches) << advice.text;
  EXPECT_THAT(advice.text, HasSubstr("more microbatches (4)"));
  limits.batch_size = 3;
  EXPECT_NE(AdviceOn("zb_h1", {4, 1, 2}, stages, limits).kind,
            AdviceKind::kMoreMicrobatches);
  // Where nothing shrinks, more of them take longer.
  limits.batch_size = 0;
  limits.fixed_part = 1;
  EXPECT_NE(AdviceOn("zb_h1", {4, 1, 2}, stages, limits).kind,
            AdviceKind::kMoreMicrobatches);
}

TEST(PipelineAdvice, AnotherSchedule) {
  AdviceLimits limits;
  limits.batch_size = 8;
  const std::vector<StageCost> stages(4, InMs(1, 1, 1));
  const Advice several = AdviceOn("1f1b", {4, 1, 8}, stages, limits);
  EXPECT_EQ(several.kind, AdviceKind::kOtherSchedule);
  EXPECT_THAT(several.text, HasSubstr("another schedule (--schedule=zb_v"));
  limits.layers = 7;  // too few for two stages on each of four devices
  const Advice one = AdviceOn("1f1b", {4, 1, 8}, stages, limits);
  EXPECT_EQ(one.kind, AdviceKind::kOtherSchedule);
  EXPECT_THAT(one.text,
              HasSubstr("another schedule (--schedule=zb_h1, which keeps the "
                        "activations of 4 microbatches on one "
                        "device, 1f1b of 4"));
}

TEST(PipelineAdvice, Nothing) {
  AdviceLimits limits;
  limits.layers = 2;
  limits.batch_size = 64;
  const Advice advice =
      AdviceOn("zb_h1", {2, 1, 64}, {InMs(1, 1, 1), InMs(1, 1, 1.02)}, limits);
  EXPECT_EQ(advice.kind, AdviceKind::kNothing) << advice.text;
  EXPECT_THAT(advice.text, testing::StartsWith("nothing: "));
}

TEST(PipelineAdvice, OnAScheduleOfOnesOwn) {
  Schedule mine = *GPipe({2, 1, 2});
  mine.name = "./mine.txt";
  const auto advice =
      AdviseOn(mine, {{InMs(1, 1, 1), InMs(1, 1, 1)}, 0}, {100, 2, 0});
  ASSERT_TRUE(advice.ok()) << advice.status();
  // How it would go on with more microbatches is not known.
  EXPECT_EQ(advice->kind, AdviceKind::kOtherSchedule);
}

}  // namespace
}  // namespace tandem::bubble_report_test
