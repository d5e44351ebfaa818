#include "tools/bench/ddp/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tools/bench/ddp/cases.h"

namespace tandem::report_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

SideResult Side(const std::string& name, std::vector<double> step_ms,
                std::vector<double> alone_ms) {
  SideResult side;
  side.name = name;
  side.step_ms = std::move(step_ms);
  side.alone_ms = std::move(alone_ms);
  return side;
}

DdpResult ExampleResult() {
  DdpResult result;
  result.bench = DdpCases(2).front();
  result.ours = Side("tandem", {1, 2, 3}, {1.5});
  result.peers = {Side("eager", {4, 4, 6}, {2})};
  SideResult compile;
  compile.name = "compile";
  compile.failure = "no compiler";
  result.peers.push_back(compile);
  result.ours.comm_ms = 2;
  result.ours.exposed_ms = 0.5;
  result.mkl_gflops = 50;
  result.one_dnn_gflops = 100;
  result.all_reduce_ms = 2;
  return result;
}

TEST(DdpJson, HoldsTheFiguresOfThePeersThatRan) {
  const json report = DdpJson({ExampleResult()}, {500, 4000});
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json expected = {{"name", "mlp_small"}, {"ours_ms", 2.0},
                         {"peer_ms", 4.0},      {"peer", "eager"},
                         {"ratio", 2.0},        {"ratio_min", 2.0},
                         {"ratio_max", 4.0}};
  EXPECT_EQ(report.at("cases")[0], expected);
  EXPECT_EQ(report.at("startup").at("ratio"), 8);
}

TEST(DdpJson, NamesThePeersThatDidNotRun) {
  const json report = DdpJson({ExampleResult()}, {});
  const json expected = {
      {{"name", "mlp_small"}, {"peer", "compile"}, {"reason", "no compiler"}}};
  EXPECT_EQ(report.at("failures"), expected);
}

TEST(DdpJson, LeavesOutAStartUpThatWasNotMeasured) {
  EXPECT_FALSE(DdpJson({ExampleResult()}, {}).contains("startup"));
}

TEST(DdpSpeedTable, SaysWhyAPeerDidNotRun) {
  const std::string table = DdpSpeedTable({ExampleResult()});
  EXPECT_THAT(table, HasSubstr("compile: did not run: no compiler"));
  EXPECT_THAT(table, HasSubstr("2.00 to 4.00"));
}

TEST(BreakdownTable, ShowsTheShareOfCommunicationThatIsExposed) {
  const std::string table = BreakdownTable({ExampleResult()});
  EXPECT_THAT(table, HasSubstr("25 %"));
  EXPECT_THAT(table, Not(HasSubstr("compile")));
}

TEST(RooflineTable, SaysWhatTheMachineCouldDo) {
  DdpResult result = ExampleResult();
  // A rank's half of the batch takes 3 GFLOP.
  result.bench.workload.gflop = 3 / 32.0;
  result.gloo_all_reduce_ms = 7;
  result.products = {{"ms", 1.05}};
  const std::string table = RooflineTable({result});
  EXPECT_THAT(table, HasSubstr("30.00"));  // 3 GFLOP at 100 GFLOP/s
  EXPECT_THAT(table, HasSubstr("70 %"));   // 1.05 of the 1.5 ms alone
  EXPECT_THAT(table, HasSubstr("2.00 ms"));
  EXPECT_THAT(table, HasSubstr("7.00 ms"));
}

TEST(ProfileTable, SumsKindsOfOperators) {
  DdpResult result = ExampleResult();
  result.profile = {{"cpu_ms", 10.0},
                    {"ops",
                     {{{"name", "aten::mm"}, {"ms", 4.0}, {"calls", 2.0}},
                      {{"name", "aten::addmm"}, {"ms", 2.0}, {"calls", 1.0}},
                      {{"name", "aten::sum"}, {"ms", 1.0}, {"calls", 3.0}}}}};
  result.products = {{"ms", 3.0},
                     {"products",
                      {{{"name", "aten::mm"},
                        {"operands", "Float[2, 3]/[3, 1]"},
                        {"ms", 1.5},
                        {"calls", 2.0}}}}};
  const std::string table = ProfileTable(result);
  EXPECT_THAT(table, HasSubstr("2.0 calls  aten::mm: Float[2, 3]/[3, 1]"));
  EXPECT_THAT(table, HasSubstr("matrices 6.00, the rest 1.00, outside"));
  EXPECT_THAT(table, HasSubstr("outside operators 3.00"));
  EXPECT_THAT(table, HasSubstr("2.0 calls  aten::mm"));
}

}  // namespace
}  // namespace tandem::report_test
