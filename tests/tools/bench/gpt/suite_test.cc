#include "tools/bench/gpt/suite.h"

#include <gtest/gtest.h>

#include "tools/bench/gpt/cases.h"

namespace tandem::gpt_suite_test {
namespace {

using nlohmann::json;

// 4 samples of 256 tokens.
CaseResult ExampleResult() {
  CaseResult result;
  result.bench = CasesNamed(GptCases({}), {"gpt_baby/2x1"})->front();
  result.bench.workload.gflop = 2;  // of a sample
  result.ours.name = "tandem";
  result.ours.step_ms = {100, 100, 128};
  result.ours.peak_mib = 300;
  SideResult eager;
  eager.name = "eager";
  eager.step_ms = {128, 128, 128};
  eager.peak_mib = 400;
  SideResult compile;
  compile.name = "compile";
  compile.failure = "no compiler";
  result.peers = {eager, compile};
  return result;
}

TEST(GptTables, HaveTokensASecondAndMemory) {
  const json report = TablesJson(GptTables({ExampleResult()}));
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json& eager = report.at("cases")[0];
  EXPECT_EQ(eager.at("peer"), "eager");
  EXPECT_EQ(eager.at("ratio"), 1.28);
  EXPECT_EQ(eager.at("ours_tokens_per_s"), 10240.0);
  EXPECT_EQ(eager.at("peer_tokens_per_s"), 8000.0);
  EXPECT_EQ(eager.at("ours_gflops"), 80.0);  // 4 x 2 GFLOP / 0.1 s
  EXPECT_EQ(eager.at("peer_gflops"), 62.5);
  EXPECT_EQ(eager.at("ours_mib"), 300.0);
  EXPECT_EQ(eager.at("peer_mib"), 400.0);
  EXPECT_NEAR(eager.at("ours_formula_mib"), 240, 0.5);
  EXPECT_EQ(eager.at("ours_formula_mib"), eager.at("peer_formula_mib"));
  EXPECT_EQ(eager.at("ours_setting"), "1f1b 1 1 uniform");
  EXPECT_EQ(report.at("failures")[0].at("reason"), "no compiler");
}

}  // namespace
}  // namespace tandem::gpt_suite_test
