// What the benchmark computes from what it has measured.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tools/bench/bench_case.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/compare_losses.h"
#include "tools/bench/median.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Median, IsTheMiddleOne) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({4, 1, 100, 2}), 3);
}

TEST(RatioOf, ComparesMediansAndPairs) {
  const Ratio ratio = RatioOf({10, 30, 20}, {10, 10, 5});
  EXPECT_EQ(ratio.ratio, 2);  // 20 / 10
  EXPECT_EQ(ratio.min, 1);
  EXPECT_EQ(ratio.max, 4);
}

TEST(RatioOf, IsGreaterThanOneWhereOursIsFaster) {
  EXPECT_GT(RatioOf({2}, {1}).ratio, 1);
}

TEST(CompareLosses, AcceptsWhatIsEqualWithinTheTolerance) {
  EXPECT_TRUE(CompareLosses({1, 2}, "eager", {1.00009, 1.9999}).ok());
}

TEST(CompareLosses, NamesTheStepThatDiffers) {
  const absl::Status status = CompareLosses({1, 2}, "eager", {1, 2.001});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 2"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("eager"));
}

TEST(CompareLosses, RefusesNanAndMissingSteps) {
  EXPECT_FALSE(CompareLosses({NAN}, "eager", {NAN}).ok());
  EXPECT_FALSE(CompareLosses({1}, "eager", {1, 1}).ok());
}

TEST(BenchCases, AreFoundByName) {
  ASSERT_TRUE(CasesNamed({}).ok());
  EXPECT_EQ(CasesNamed({})->size(), 4u);
  const auto chosen = CasesNamed({"gpt_tiny", "mlp_small"});
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ((*chosen)[0].name, "gpt_tiny");
  EXPECT_EQ((*chosen)[1].batch_size, 32);
  const absl::Status unknown = CasesNamed({"vgg"}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("resnet18"));
}

SideResult Side(const std::string& name, std::vector<double> step_ms,
                std::vector<double> local_ms) {
  SideResult side;
  side.name = name;
  side.step_ms = std::move(step_ms);
  side.local_ms = std::move(local_ms);
  return side;
}

CaseResult ExampleResult() {
  CaseResult result;
  result.bench = BenchCases().front();
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

TEST(BenchJson, HoldsTheFiguresOfThePeersThatRan) {
  const nlohmann::json json = BenchJson({ExampleResult()}, {500, 4000});
  ASSERT_EQ(json.at("cases").size(), 1u);
  const nlohmann::json expected = {{"name", "mlp_small"}, {"ours_ms", 2.0},
                                   {"peer_ms", 4.0},      {"peer", "eager"},
                                   {"ratio", 2.0},        {"ratio_min", 2.0},
                                   {"ratio_max", 4.0}};
  EXPECT_EQ(json.at("cases")[0], expected);
  EXPECT_EQ(json.at("startup").at("ratio"), 8);
}

TEST(BenchJson, NamesThePeersThatDidNotRun) {
  const nlohmann::json json = BenchJson({ExampleResult()}, {});
  const nlohmann::json expected = {
      {{"name", "mlp_small"}, {"peer", "compile"}, {"reason", "no compiler"}}};
  EXPECT_EQ(json.at("failures"), expected);
}

TEST(BenchJson, LeavesOutAStartUpThatWasNotMeasured) {
  EXPECT_FALSE(BenchJson({ExampleResult()}, {}).contains("startup"));
}

TEST(SpeedTable, SaysWhyAPeerDidNotRun) {
  const std::string table = SpeedTable({ExampleResult()});
  EXPECT_THAT(table, HasSubstr("compile: did not run: no compiler"));
  EXPECT_THAT(table, HasSubstr("2.00 to 4.00"));
}

TEST(BreakdownTable, ShowsTheShareOfCommunicationThatIsExposed) {
  const std::string table = BreakdownTable({ExampleResult()});
  EXPECT_THAT(table, HasSubstr("25 %"));
  EXPECT_THAT(table, Not(HasSubstr("compile")));
}

TEST(RooflineTable, SaysWhatTheMachineCouldDo) {
  CaseResult result = ExampleResult();
  result.bench.gflop = 3;
  result.gloo_all_reduce_ms = 7;
  const std::string table = RooflineTable({result});
  EXPECT_THAT(table, HasSubstr("30.00"));  // 3 GFLOP at 100 GFLOP/s
  EXPECT_THAT(table, HasSubstr("2.00 ms"));
  EXPECT_THAT(table, HasSubstr("7.00 ms"));
}

}  // namespace
}  // namespace tandem
