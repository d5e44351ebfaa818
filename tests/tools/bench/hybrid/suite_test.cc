#include "tools/bench/hybrid/suite.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tools/bench/comparison/report.h"
#include "tools/bench/hybrid/cases.h"

namespace tandem::hybrid_suite_test {
namespace {

using nlohmann::json;

SideResult Side(const std::string& name, const Setting& setting,
                std::vector<double> step_ms) {
  SideResult side;
  side.name = name;
  side.setting = setting;
  side.step_ms = std::move(step_ms);
  side.peak_mib = 100;
  return side;
}

HybridResult ExampleResult() {
  const Setting fastest = {"1f1b", 1, 4, "time", 4};
  const Setting ordered = {"zb_h1", 1, 2, "uniform"};
  HybridResult result;
  result.bench = CasesNamed(HybridCases(), {"mlp_deep/2x2"})->front();
  result.ours = Side("tandem", fastest, {20, 19, 21});
  result.peers = {Side("ddp+pipelining",
                       {"1f1b", 1, 2, "time", 1, false, "flat"}, {30, 38, 42})};
  result.plain = Side("tandem", ordered, {22, 22, 22});
  result.reproducible = Side("tandem", ordered, {24.2, 22, 26.4});
  result.overlap = {4, 3};
  return result;
}

json Report(const std::vector<HybridResult>& results) {
  return TablesJson(HybridTables(results));
}

TEST(HybridTables, HoldAllFigures) {
  const json report = Report({ExampleResult()});
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
  EXPECT_EQ(cost.at("without_ms"), 22);
  EXPECT_EQ(cost.at("with_ms"), 24.2);
  EXPECT_NEAR(cost.at("cost"), 0.1, 1e-12);
  EXPECT_NEAR(cost.at("cost_min"), 0, 1e-12);
  EXPECT_NEAR(cost.at("cost_max"), 0.2, 1e-12);
  EXPECT_NEAR(cost.at("cost_of_fastest"), 0.21, 1e-12);
  EXPECT_EQ(report.at("overlap")[0].at("share"), 0.75);
  EXPECT_FALSE(report.contains("failures"));
  EXPECT_FALSE(HasFailures(ExampleResult()));
}

TEST(HybridTables, LeaveOutWhatWasNotMeasured) {
  HybridResult result = ExampleResult();
  result.reproducible = result.plain = SideResult();
  result.overlap = OverlapTimes();
  result.peers = {SideResult()};
  result.peers[0].name = "ddp";
  result.peers[0].failure = "no Python";
  const json report = Report({result});
  EXPECT_TRUE(report.at("cases").empty());
  EXPECT_EQ(report.at("failures")[0].at("reason"), "no Python");
  EXPECT_FALSE(report.contains("reproducible"));
  EXPECT_FALSE(report.contains("overlap"));
  EXPECT_TRUE(HasFailures(result));
}

TEST(HybridTables, HaveARowForWhatWasMeasured) {
  HybridResult failed = ExampleResult();
  failed.bench.name = "other";
  failed.peers[0].failure = "no Python";
  failed.reproducible = SideResult();
  failed.overlap = OverlapTimes();
  const json report = Report({ExampleResult(), failed});
  EXPECT_EQ(report.at("cases").size(), 1u);
  EXPECT_EQ(report.at("failures")[0].at("name"), "other");
  EXPECT_EQ(report.at("reproducible").size(), 1u);
  EXPECT_EQ(report.at("overlap").size(), 1u);
}

}  // namespace
}  // namespace tandem::hybrid_suite_test
