#include "tools/bench/pipeline/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/bench/comparison/report.h"
#include "tools/bench/pipeline/cases.h"

namespace tandem::report_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

PipelineResults ExampleResults() {
  PipelineResult result;
  result.bench = CasesNamed(PipelineCases(2), {"mlp_deep/1f1b"})->front();
  result.ours.name = "tandem";
  result.ours.setting = {"1f1b", 1, 4, "time"};
  result.ours.step_ms = {25, 24, 26};
  result.ours.alone_ms = {40, 40, 40};
  result.ours.cpu_ms = {22, 20, 24};
  result.limit = 0.8;
  result.parts = {25, 20, 0, 5, 0, 0};
  SideResult peer;
  peer.name = "pipelining";
  peer.setting = {"1f1b", 1, 8, "uniform"};
  peer.step_ms = {50, 48, 52};
  peer.alone_ms = {50, 50, 50};
  peer.cpu_ms = {30, 30, 31};
  SideResult single;
  single.name = "single";
  single.failure = "no Python";
  result.peers = {peer, single};
  PipelineResults results;
  results.cases = {result};
  return results;
}

TEST(EfficiencyOf, IsAgainstOneCore) {
  const PipelineResults results = ExampleResults();
  EXPECT_NEAR(EfficiencyOf(results.cases[0].ours, 2), 0.8, 1e-12);
  EXPECT_EQ(EfficiencyOf(results.cases[0].peers[1], 2), 0);
}

TEST(PipelineJson, HoldsFiguresAndFailures) {
  PipelineResults results = ExampleResults();
  results.unavailable = {{"mlp_deep", "zbv", "not connected"}};
  const json report = PipelineJson(results);
  const json expected = {{"name", "mlp_deep/1f1b"},
                         {"ours_ms", 25.0},
                         {"peer_ms", 50.0},
                         {"peer", "pipelining"},
                         {"ratio", 2.0},
                         {"ratio_min", 2.0},
                         {"ratio_max", 2.0},
                         {"efficiency", 0.8},
                         {"limit", 0.8},
                         {"peer_efficiency", 0.5},
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

TEST(PipelineJson, TakesTheBestOfEachSide) {
  PipelineResults results = ExampleResults();
  results.cases.push_back(results.cases.front());
  results.cases[1].ours.step_ms = {20, 20, 20};
  results.cases[1].ours.setting.schedule = "zb_h1";
  results.cases[1].peers[0].step_ms = {60, 60, 60};
  const json best = PipelineJson(results).at("best")[0];
  EXPECT_EQ(best.at("ours"), "zb_h1 1 4 time");
  EXPECT_EQ(best.at("peers"), "1f1b 1 8 uniform");
  EXPECT_EQ(best.at("ratio"), 2.5);
}

TEST(PipelineTables, SayWhatWasMeasured) {
  const PipelineResults results = ExampleResults();
  EXPECT_THAT(PipelineSpeedTable(results),
              HasSubstr("single: did not run: no Python"));
  EXPECT_THAT(PipelineSpeedTable(results), HasSubstr("2.00 to 2.00"));
  EXPECT_THAT(EfficiencyTable(results), HasSubstr("100.0%"));
  EXPECT_THAT(StepPartsTable(results), HasSubstr("20.00"));
  EXPECT_THAT(BestTable(results), HasSubstr("ratio 2.00"));
}

}  // namespace
}  // namespace tandem::report_test
