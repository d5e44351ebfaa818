#include "tools/bench/comparison/report.h"

#include <gtest/gtest.h>

#include <string>
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
  result.ours = Side("tandem", {10, 20, 12});
  result.peers = {Side("eager", {15, 20, 24}), Side("compile", {})};
  result.peers[1].failure = "no compiler";
  return result;
}

TEST(SpeedTable, ShowsFiguresAndBelowThemFailures) {
  SpeedTable table({"setting"});
  table.Add(Example(), [](const SideResult& peer) {
    return std::vector<std::string>{"of " + peer.name};
  });
  EXPECT_EQ(table.Text(),
            "case     peer   ours ms  peer ms  ratio  (min to max)  setting\n"
            "mlp/2x1  eager    12.00    20.00   1.67  1.00 to 2.00  of eager\n"
            "mlp/2x1 compile: did not run: no compiler\n");
}

TEST(SpeedTable, SaysWhatEachSideMultipliesWithAndOnWhichProcessor) {
  CaseResult result = Example();
  result.ours.kernels = "our library";
  result.peers[0].kernels = "its library";
  const auto none = [](const SideResult&) {
    return std::vector<std::string>();
  };
  SpeedTable table({});
  table.Add(result, none);
  table.Add(result, none);  // said once
  EXPECT_EQ(table.Text(),
            DescribeProcessor() +
                "\n"
                "case     peer   ours ms  peer ms  ratio  (min to max)\n"
                "mlp/2x1  eager    12.00    20.00   1.67  1.00 to 2.00\n"
                "mlp/2x1  eager    12.00    20.00   1.67  1.00 to 2.00\n"
                "fp32, tandem: our library\n"
                "fp32, eager: its library\n"
                "mlp/2x1 compile: did not run: no compiler\n"
                "mlp/2x1 compile: did not run: no compiler\n");
  json report = {{"cases", json::array()}};
  AddToJson(
      result, [](const SideResult&) { return json::object(); }, report);
  EXPECT_EQ(report["cases"][0]["peer_kernels"], "its library");
  EXPECT_EQ(report["cases"][0]["processor"], DescribeProcessor());
}

TEST(Milliseconds, HaveMorePlacesWhereTheyAreFew) {
  EXPECT_EQ(Milliseconds(0.4712), "0.471");
  EXPECT_EQ(Milliseconds(26.3), "26.30");
  EXPECT_EQ(Range({1, 0.5, 2}), "0.50 to 2.00");
}

TEST(AddToJson, HoldsFiguresAndFailures) {
  json report = {{"cases", json::array()}};
  AddToJson(
      Example(),
      [](const SideResult&) {
        return json{{"more", 1}};
      },
      report);
  const json expected = {{"name", "mlp/2x1"},  {"ours_ms", 12.0},
                         {"peer_ms", 20.0},    {"peer", "eager"},
                         {"ratio", 20.0 / 12}, {"ratio_min", 1.0},
                         {"ratio_max", 2.0},   {"more", 1}};
  EXPECT_EQ(report.at("cases"), json::array({expected}));
  const json failure = {
      {"name", "mlp/2x1"}, {"peer", "compile"}, {"reason", "no compiler"}};
  EXPECT_EQ(report.at("failures"), json::array({failure}));
}

TEST(HasFailures, SeesAPeerWithoutFigures) {
  CaseResult result = Example();
  EXPECT_TRUE(HasFailures(result));
  result.peers.pop_back();
  EXPECT_FALSE(HasFailures(result));
}

}  // namespace
}  // namespace tandem::report_test
