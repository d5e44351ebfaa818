#include "tools/bench/pipeline/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/testing/statuses.h"
#include "parallel/schedule/schedules.h"
#include "tests/tools/bench/sides.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/pipeline/run.h"

namespace tandem::pipeline_suite_test {
namespace {

using nlohmann::json;

TEST(PipelineCases, AreEachModelUnderEachSchedule) {
  ASSERT_EQ(CasesNamed(PipelineCases(2), {})->size(), 18u);
  const auto one = CasesNamed(PipelineCases(2), {"gpt_tiny/zb_h1"});
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(one->front().workload.batch_size, 8);
  EXPECT_EQ(CasesNamed(PipelineCases(2), {"resnet18", "mlp_deep/1f1b"})->size(),
            7u);
  const absl::Status unknown =
      CasesNamed(PipelineCases(2), {"mlp_deep/pipedream"}).status();
  EXPECT_THAT(unknown, InvalidArgument("mlp_deep/1f1b"));
}

TEST(PipelineCases, LeaveOnlySettingsThatBothSidesCanRun) {
  for (const Case& each : PipelineCases(2)) {
    for (const Setting& setting : each.ours) {
      EXPECT_LE(setting.microbatches, each.workload.batch_size);
      EXPECT_TRUE(MakeSchedule(setting.schedule,
                               {2, setting.chunks, setting.microbatches})
                      .ok())
          << ToString(setting);
    }
    for (const Setting& setting : each.peers) {
      EXPECT_EQ(each.workload.batch_size % setting.microbatches, 0);
    }
  }
}

TEST(DoubtfulSettings, HaveTwoMicrobatchesAStage) {
  Workload workload;
  workload.batch_size = 8;
  for (const std::string& schedule : UnreliablePeerSchedules()) {
    const std::vector<Setting> settings =
        UnreliableSettings(schedule, workload);
    ASSERT_EQ(settings.size(), 4u);
    for (const Setting& each : settings) {
      EXPECT_EQ(each.schedule, schedule);
      EXPECT_GE(each.microbatches, 4);
    }
  }
}

PipelineResults ExampleResults() {
  PipelineResult result;
  result.bench = CasesNamed(PipelineCases(2), {"mlp_deep/1f1b"})->front();
  result.ours = MeasuredSide("tandem", {25, 24, 26});
  result.ours.setting = {"1f1b", 1, 4, "time"};
  result.ours.alone_ms = {40, 40, 40};
  result.ours.cpu_ms = {22, 20, 24};
  result.limit = 0.8;
  result.parts = {25, 20, 0, 5, 0, 0};
  SideResult peer = MeasuredSide("pipelining", {50, 48, 52});
  peer.setting = {"1f1b", 1, 8, "uniform"};
  peer.alone_ms = {50, 50, 50};
  peer.cpu_ms = {30, 30, 31};
  result.peers = {peer, FailedSide("single", "no Python")};
  PipelineResults results;
  results.cases = {result};
  return results;
}

json Report(const PipelineResults& results) {
  return TablesJson(PipelineTables(results));
}

TEST(EfficiencyOf, IsAgainstOneCore) {
  const PipelineResults results = ExampleResults();
  EXPECT_NEAR(PipelineEfficiency(results.cases[0].ours, 2), 0.8, 1e-12);
  EXPECT_EQ(PipelineEfficiency(results.cases[0].peers[1], 2), 0);
}

TEST(PipelineTables, HoldFiguresAndFailures) {
  PipelineResults results = ExampleResults();
  results.unavailable = {{"mlp_deep", "zbv", "not connected"}};
  const json report = Report(results);
  const json expected = {{"name", "mlp_deep/1f1b"},
                         {"ours_ms", 25.0},
                         {"peer_ms", 50.0},
                         {"peer", "pipelining"},
                         {"ratio", 2.0},
                         {"ratio_min", 2.0},
                         {"ratio_max", 2.0},
                         {"ours_cpu_ms", 11.0},
                         {"peer_cpu_ms", 30.0},
                         {"ours_setting", "1f1b 1 4 time"},
                         {"peer_setting", "1f1b 1 8 uniform"}};
  ASSERT_EQ(report.at("cases").size(), 1u);
  EXPECT_EQ(report.at("cases")[0], expected);
  EXPECT_EQ(report.at("failures")[0].at("reason"), "no Python");
  EXPECT_EQ(report.at("unavailable")[0].at("schedule"), "zbv");
  EXPECT_TRUE(HasFailures(results.cases[0]));
}

TEST(PipelineTables, SetEfficiencyBesideTheLimit) {
  PipelineResults results = ExampleResults();
  const json efficiency = Report(results).at("efficiency")[0];
  EXPECT_EQ(efficiency.at("alone_ms"), 40);
  EXPECT_EQ(efficiency.at("efficiency"), 0.8);
  EXPECT_EQ(efficiency.at("limit"), 0.8);
  EXPECT_EQ(efficiency.at("of_limit"), 1);
  // All of the step is theory.
  EXPECT_NEAR(efficiency.at("microbatch_ms"), 0, 1e-12);
  EXPECT_EQ(efficiency.at("peer_efficiency"), 0.5);
  // 8 microbatches; 25 ms on each core, 31.25 with the bubble.
  EXPECT_NEAR(efficiency.at("peer_microbatch_ms"), 18.75 / 8, 1e-12);
  results.cases[0].peers.erase(results.cases[0].peers.begin());
  EXPECT_FALSE(Report(results).at("efficiency")[0].contains("peer_efficiency"));
}

TEST(PipelineTables, SayWhereAStepsTimeGoes) {
  const json parts = Report(ExampleResults()).at("parts")[0];
  const json expected = {{"name", "mlp_deep/1f1b"}, {"step_ms", 25.0},
                         {"whole_ms", 20.0},        {"microbatching_ms", 0.0},
                         {"bubble_ms", 5.0},        {"imbalance_ms", 0.0},
                         {"rest_ms", 0.0}};
  EXPECT_EQ(parts, expected);
}

TEST(PipelineTables, TakeTheBestOfEachSide) {
  PipelineResults results = ExampleResults();
  EXPECT_EQ(Report(results).at("best")[0].at("ratio"), 2);
  results.cases.push_back(results.cases.front());
  results.cases[1].ours.step_ms = {20, 20, 20};
  results.cases[1].ours.setting.schedule = "zb_h1";
  results.cases[1].peers[0].step_ms = {60, 60, 60};
  const json best = Report(results).at("best")[0];
  EXPECT_EQ(best.at("name"), "mlp_deep");
  EXPECT_EQ(best.at("peer"), "pipelining");
  EXPECT_EQ(best.at("ours"), "zb_h1 1 4 time");
  EXPECT_EQ(best.at("ours_ms"), 20);
  EXPECT_EQ(best.at("peers"), "1f1b 1 8 uniform");
  EXPECT_EQ(best.at("peer_ms"), 50);
  EXPECT_EQ(best.at("ratio"), 2.5);
}

}  // namespace
}  // namespace tandem::pipeline_suite_test
