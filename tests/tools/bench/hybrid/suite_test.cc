#include "tools/bench/hybrid/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/testing/statuses.h"
#include "parallel/schedule/schedules.h"
#include "tests/tools/bench/sides.h"
#include "tools/bench/comparison/report.h"

namespace tandem::hybrid_suite_test {
namespace {

using nlohmann::json;

TEST(HybridCases, AreEachModelInEachLayout) {
  ASSERT_EQ(CasesNamed(HybridCases(), {})->size(), 15u);
  const auto one = CasesNamed(HybridCases(), {"gpt_tiny/2x2_ranks"});
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(one->front().layout.ranks(), 4);
  EXPECT_EQ(one->front().workload.batch_size, 8);
  EXPECT_EQ(CasesNamed(HybridCases(), {"resnet18", "mlp_deep/2x1"})->size(),
            6u);
  const absl::Status unknown =
      CasesNamed(HybridCases(), {"mlp_deep/3x1"}).status();
  EXPECT_THAT(unknown, InvalidArgument("'mlp_deep/3x1'", "mlp_deep/2x1"));
}

TEST(HybridCases, LeaveOnlySettingsThatBothSidesCanRun) {
  for (const Case& each : HybridCases()) {
    EXPECT_EQ(each.workload.batch_size % each.layout.replicas, 0);
    const int64_t samples = each.workload.batch_size / each.layout.replicas;
    EXPECT_FALSE(each.ours.empty());
    for (const Setting& setting : each.ours) {
      EXPECT_LE(setting.microbatches, samples) << each.name;
      EXPECT_TRUE(
          MakeSchedule(setting.schedule, {each.layout.devices_of_replica(),
                                          setting.chunks, setting.microbatches})
              .ok())
          << each.name << " " << ToString(setting);
      EXPECT_TRUE(setting.recipe.empty());
    }
    EXPECT_FALSE(each.peers.empty());
    for (const Setting& setting : each.peers) {
      EXPECT_EQ(samples % setting.microbatches, 0) << each.name;
      EXPECT_EQ(setting.recipe.empty(), each.layout.replicas == 1);
    }
  }
}

TEST(HybridCases, CompareLossesOfASettingWithOneThatOursHas) {
  for (const Case& each : HybridCases()) {
    for (const Setting& peer : each.peers) {
      EXPECT_TRUE(std::any_of(each.ours.begin(), each.ours.end(),
                              [&](const Setting& ours) {
                                return ours.microbatches == peer.microbatches;
                              }))
          << each.name << " " << ToString(peer);
    }
  }
}

TEST(HybridCases, NeverHaveThePeerAverageWithoutSeeingGradients) {
  for (const Case& each : HybridCases()) {
    for (const Setting& setting : each.peers) {
      if (setting.schedule != "zero_bubble") continue;
      EXPECT_NE(setting.recipe, "ddp") << each.name;
    }
  }
}

SideResult Side(const std::string& name, const Setting& setting,
                const std::vector<double>& step_ms) {
  SideResult side = MeasuredSide(name, step_ms, 100);
  side.setting = setting;
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
