// What the hybrid's benchmark computes from what it has measured.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "core/instrument/trace.h"
#include "parallel/schedule/schedules.h"
#include "tools/bench/hybrid_case.h"
#include "tools/bench/hybrid_report.h"
#include "tools/bench/overlap_times.h"

namespace tandem {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

TEST(BenchLayout, CountsRanksAndDevices) {
  const BenchLayout layout = {2, 3, 4};
  EXPECT_EQ(layout.ranks(), 6);
  EXPECT_EQ(layout.devices_of_replica(), 12);
  EXPECT_EQ(layout.OverRanks().ranks(), 24);
  EXPECT_EQ(layout.OverRanks().replicas, 2);
  EXPECT_EQ(layout.OverRanks().devices, 1);
}

TEST(HybridCases, AreEachModelInEachLayout) {
  ASSERT_EQ(HybridCasesNamed({})->size(), 15u);
  const auto one = HybridCasesNamed({"gpt_tiny/2x2_ranks"});
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(one->front().layout.ranks(), 4);
  EXPECT_EQ(one->front().bench.batch_size, 8);
  EXPECT_EQ(HybridCasesNamed({"resnet18", "mlp_deep/2x1"})->size(), 6u);
  const absl::Status unknown = HybridCasesNamed({"mlp_deep/3x1"}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("'mlp_deep/3x1'"));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("mlp_deep/2x1"));
}

TEST(HybridCases, LeaveOnlySettingsThatBothSidesCanRun) {
  for (const HybridCase& each : HybridCases()) {
    EXPECT_EQ(each.bench.batch_size % each.layout.replicas, 0);
    const int64_t samples = each.bench.batch_size / each.layout.replicas;
    EXPECT_FALSE(each.ours.empty());
    for (const PipelineSetting& setting : each.ours) {
      EXPECT_LE(setting.microbatches, samples) << each.name;
      EXPECT_TRUE(
          MakeSchedule(setting.schedule, {each.layout.devices_of_replica(),
                                          setting.chunks, setting.microbatches})
              .ok())
          << each.name << " " << ToString(setting);
      EXPECT_TRUE(setting.recipe.empty());
    }
    EXPECT_FALSE(each.peers.empty());
    for (const PipelineSetting& setting : each.peers) {
      EXPECT_EQ(samples % setting.microbatches, 0) << each.name;
      EXPECT_EQ(setting.recipe.empty(), each.layout.replicas == 1);
    }
  }
}

TEST(HybridCases, CompareLossesOfASettingWithOneThatOursHas) {
  for (const HybridCase& each : HybridCases()) {
    for (const PipelineSetting& peer : each.peers) {
      EXPECT_TRUE(std::any_of(each.ours.begin(), each.ours.end(),
                              [&](const PipelineSetting& ours) {
                                return ours.microbatches == peer.microbatches;
                              }))
          << each.name << " " << ToString(peer);
    }
  }
}

TEST(HybridCases, NeverHaveThePeerAverageWithoutSeeingGradients) {
  for (const HybridCase& each : HybridCases()) {
    for (const PipelineSetting& setting : each.peers) {
      if (setting.schedule != "zero_bubble") continue;
      EXPECT_NE(setting.recipe, "ddp") << each.name;
    }
  }
}

TEST(Covered, CountsWhatOverlapsOnce) {
  EXPECT_EQ(Covered({}), 0);
  EXPECT_EQ(Covered({{2, 5}}), 3);
  EXPECT_EQ(Covered({{4, 6}, {0, 1}, {5, 9}, {4, 5}}), 6);
  EXPECT_EQ(Covered({{0, 10}, {1, 2}, {10, 11}}), 11);
}

TEST(CoveredByBoth, IsTheIntersection) {
  EXPECT_EQ(CoveredByBoth({{0, 4}, {6, 8}}, {{3, 7}}), 2);
  EXPECT_EQ(CoveredByBoth({{0, 4}, {2, 5}}, {{1, 3}, {2, 6}}), 4);
  EXPECT_EQ(CoveredByBoth({{0, 1}}, {{1, 2}}), 0);
  EXPECT_EQ(CoveredByBoth({}, {{1, 2}}), 0);
}

TEST(SpansOf, KeepsBucketsAndWhatDevicesDidInBackward) {
  const TraceEvent::Clock::time_point zero;
  const auto event = [&](const char* track, const char* name, int begin) {
    return TraceEvent{track,
                      name,
                      "",
                      zero + std::chrono::milliseconds(begin),
                      zero + std::chrono::microseconds(1000 * begin + 500),
                      {}};
  };
  const json spans =
      SpansOf({event("device 0", "forward 0 of stage 0", 1),
               event("device 0", "backward 0 of stage 0", 2),
               event("compute", "backward", 3),
               event("communication", "all-reduce of bucket 1", 4),
               event("compute", "optimizer", 5)});
  EXPECT_EQ(spans.at("backwards"), json::parse("[[2.0, 2.5]]"));
  EXPECT_EQ(spans.at("all_reduces"), json::parse("[[4.0, 4.5]]"));
}

json Step(const json& all_reduces, const json& backwards) {
  return {{"all_reduces", all_reduces}, {"backwards", backwards}};
}

TEST(OverlapOf, TakesTheRanksOfAReplicaTogether) {
  // Two replicas of two ranks, one step: rank 1's bucket goes from 10 to 14
  // while rank 0 computes until 13; on the other replica nothing is hidden.
  const std::vector<json> answers = {
      {{"steps", {Step({{13.0, 15.0}}, {{5.0, 13.0}})}}},
      {{"steps", {Step({{10.0, 14.0}}, {{4.0, 10.0}})}}},
      {{"steps", {Step(json::array(), {{0.0, 8.0}})}}},
      {{"steps", {Step({{10.0, 11.0}}, {{0.0, 5.0}})}}}};
  const OverlapTimes times = OverlapOf(answers, /*pipe=*/2);
  EXPECT_NEAR(times.all_reduce_ms, (5 + 1) / 2.0, 1e-12);
  EXPECT_NEAR(times.hidden_ms, (3 + 0) / 2.0, 1e-12);
  EXPECT_NEAR(times.share(), 0.5, 1e-12);
  // Each rank a replica of its own: rank 1's is hidden by nobody.
  EXPECT_NEAR(OverlapOf(answers, 1).hidden_ms, 0, 1e-12);
}

TEST(OverlapOf, IsAMeanOverSteps) {
  const std::vector<json> answers = {
      {{"steps",
        {Step({{0.0, 4.0}}, {{0.0, 4.0}}), Step({{10.0, 12.0}}, {})}}}};
  const OverlapTimes times = OverlapOf(answers, 1);
  EXPECT_NEAR(times.all_reduce_ms, 3, 1e-12);
  EXPECT_NEAR(times.hidden_ms, 2, 1e-12);
  EXPECT_EQ(OverlapTimes().share(), 0);
}

PipelineSideResult Side(const std::string& name, const PipelineSetting& setting,
                        std::vector<double> step_ms) {
  PipelineSideResult side;
  side.name = name;
  side.setting = setting;
  side.step_ms = std::move(step_ms);
  side.peak_mib = 100;
  return side;
}

HybridCaseResult ExampleResult() {
  const PipelineSetting fastest = {"1f1b", 1, 4, "time", 4};
  const PipelineSetting ordered = {"zb_h1", 1, 2, "uniform"};
  HybridCaseResult result;
  result.bench = HybridCasesNamed({"mlp_deep/2x2"})->front();
  result.ours = Side("tandem", fastest, {20, 19, 21});
  result.peer = Side("ddp+pipelining", {"1f1b", 1, 2, "time", 1, false, "flat"},
                     {30, 38, 42});
  result.plain = Side("tandem", ordered, {22, 22, 22});
  result.reproducible = Side("tandem", ordered, {24.2, 22, 26.4});
  result.overlap = {4, 3};
  return result;
}

TEST(HybridJson, HoldsAllFigures) {
  const json report = HybridJson({ExampleResult()});
  const json expected = {{"name", "mlp_deep/2x2"},
                         {"ours_ms", 20.0},
                         {"peer_ms", 38.0},
                         {"peer", "ddp+pipelining"},
                         {"ratio", 1.9},
                         {"ratio_min", 1.5},
                         {"ratio_max", 2.0},
                         {"ours_mib", 100.0},
                         {"peer_mib", 100.0},
                         {"ours_setting", "1f1b 1 4 time 4"},
                         {"peer_setting", "1f1b 1 2 time flat"}};
  EXPECT_EQ(report.at("cases"), json::array({expected}));
  const json& cost = report.at("reproducible")[0];
  EXPECT_EQ(cost.at("name"), "mlp_deep/2x2");
  EXPECT_EQ(cost.at("setting"), "zb_h1 1 2 uniform");
  EXPECT_NEAR(cost.at("cost"), 0.1, 1e-12);
  EXPECT_NEAR(cost.at("cost_min"), 0, 1e-12);
  EXPECT_NEAR(cost.at("cost_max"), 0.2, 1e-12);
  EXPECT_NEAR(cost.at("cost_of_fastest"), 0.21, 1e-12);
  EXPECT_EQ(report.at("overlap")[0].at("share"), 0.75);
  EXPECT_FALSE(report.contains("failures"));
  EXPECT_FALSE(HasFailures({ExampleResult()}));
}

TEST(HybridJson, LeavesOutWhatWasNotMeasured) {
  HybridCaseResult result = ExampleResult();
  result.reproducible = result.plain = PipelineSideResult();
  result.overlap = OverlapTimes();
  result.peer = PipelineSideResult();
  result.peer.name = "ddp";
  result.peer.failure = "no Python";
  const json report = HybridJson({result});
  EXPECT_TRUE(report.at("cases").empty());
  EXPECT_EQ(report.at("failures")[0].at("reason"), "no Python");
  EXPECT_FALSE(report.contains("reproducible"));
  EXPECT_FALSE(report.contains("overlap"));
  EXPECT_TRUE(HasFailures({ExampleResult(), result}));
}

TEST(HybridTables, SayWhatWasMeasured) {
  HybridCaseResult failed = ExampleResult();
  failed.bench.name = "other";
  failed.peer.failure = "no Python";
  failed.reproducible = PipelineSideResult();
  failed.overlap = OverlapTimes();
  const std::vector<HybridCaseResult> results = {ExampleResult(), failed};
  const std::string speed = HybridSpeedTable(results);
  EXPECT_THAT(speed, HasSubstr("1.90"));
  EXPECT_THAT(speed, HasSubstr("1.50 to 2.00"));
  EXPECT_THAT(speed, HasSubstr("did not run: no Python"));
  const std::string costs = ReproducibleTable(results);
  EXPECT_THAT(costs, HasSubstr("10.0 %"));
  EXPECT_THAT(costs, HasSubstr("21.0 %"));
  EXPECT_THAT(costs, Not(HasSubstr("other")));
  const std::string overlap = OverlapTable(results);
  EXPECT_THAT(overlap, HasSubstr("75 %"));
  EXPECT_THAT(overlap, Not(HasSubstr("other")));
}

}  // namespace
}  // namespace tandem
