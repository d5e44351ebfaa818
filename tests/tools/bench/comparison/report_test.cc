#include "tools/bench/comparison/report.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/device/processor.h"

namespace tandem::report_test {
namespace {

using nlohmann::json;

SideResult Side(const std::string& name, std::vector<double> step_ms) {
  SideResult side;
  side.name = name;
  side.step_ms = std::move(step_ms);
  return side;
}

CaseResult Example() {
  CaseResult result;
  result.bench.name = "mlp/2x1";
  result.bench.workload.batch_size = 6;
  result.ours = Side("tandem", {10, 20, 12});
  result.peers = {Side("eager", {15, 20, 24}), Side("compile", {})};
  result.peers[1].failure = "no compiler";
  return result;
}

json ReportOf(const CaseTables& tables) { return TablesJson(tables.tables()); }

TEST(CaseTables, HoldFiguresAndFailures) {
  CaseTables tables({{"more"}, {"setting"}});
  tables.Add(Example(), [](const SideResult& peer) -> std::vector<json> {
    return {1, "of " + peer.name};
  });
  const json report = ReportOf(tables);
  const json expected = {
      {"name", "mlp/2x1"}, {"ours_ms", 12.0},    {"peer_ms", 20.0},
      {"peer", "eager"},   {"ratio", 20.0 / 12}, {"ratio_min", 1.0},
      {"ratio_max", 2.0},  {"more", 1},          {"setting", "of eager"}};
  EXPECT_EQ(report.at("cases"), json::array({expected}));
  const json failure = {
      {"name", "mlp/2x1"}, {"peer", "compile"}, {"reason", "no compiler"}};
  EXPECT_EQ(report.at("failures"), json::array({failure}));
  EXPECT_FALSE(report.contains("kernels"));
}

TEST(CaseTables, SayWhatEachSideMultipliesWithAndOnWhichProcessor) {
  CaseResult result = Example();
  result.ours.kernels = "our library";
  result.peers[0].kernels = "its library";
  const auto none = [](const SideResult&) { return std::vector<json>(); };
  CaseTables tables({});
  tables.Add(result, none);
  tables.Add(result, none);  // said once
  const json report = ReportOf(tables);
  EXPECT_EQ(report.at("cases").size(), 2u);
  EXPECT_EQ(report.at("failures").size(), 2u);
  const json ours = {{"name", "fp32"},
                     {"side", "tandem"},
                     {"kernels", "our library"},
                     {"processor", DescribeProcessor()}};
  const json peers = {{"name", "fp32"},
                      {"side", "eager"},
                      {"kernels", "its library"},
                      {"processor", DescribeProcessor()}};
  EXPECT_EQ(report.at("kernels"), json::array({ours, peers}));
}

TEST(SamplesPerSecond, AreOfTheMedianStep) {
  const CaseResult result = Example();
  EXPECT_DOUBLE_EQ(SamplesPerSecond(result, result.ours), 500);
  EXPECT_DOUBLE_EQ(SamplesPerSecond(result, result.peers[0]), 300);
}

TEST(HasFailures, SeesAPeerWithoutFigures) {
  CaseResult result = Example();
  EXPECT_TRUE(HasFailures(result));
  result.peers.pop_back();
  EXPECT_FALSE(HasFailures(result));
}

}  // namespace
}  // namespace tandem::report_test
