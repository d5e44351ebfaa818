#include "tools/bench/gpt/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tools/bench/gpt/cases.h"

namespace tandem::report_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

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

TEST(GptTable, HasTokensASecondAndMemory) {
  const std::string table = GptTable({ExampleResult()});
  EXPECT_THAT(table, HasSubstr("10240 / 8000"));
  EXPECT_THAT(table, HasSubstr("80 / 62"));  // 4 x 2 GFLOP / 0.1 s
  EXPECT_THAT(table, HasSubstr("300 / 400"));
  EXPECT_THAT(table, HasSubstr("by formula"));
  EXPECT_THAT(table, HasSubstr("240 / 240"));
  EXPECT_THAT(table, HasSubstr("1.28"));
  EXPECT_THAT(table, HasSubstr("compile: did not run: no compiler"));
}

TEST(GptJson, HasTheSame) {
  const json report = GptJson({ExampleResult()});
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json& eager = report.at("cases")[0];
  EXPECT_EQ(eager.at("peer"), "eager");
  EXPECT_EQ(eager.at("ratio"), 1.28);
  EXPECT_EQ(eager.at("ours_tokens_per_s"), 10240.0);
  EXPECT_EQ(eager.at("peer_tokens_per_s"), 8000.0);
  EXPECT_EQ(eager.at("ours_gflops"), 80.0);
  EXPECT_EQ(eager.at("ours_mib"), 300.0);
  EXPECT_EQ(eager.at("ours_formula_mib"), eager.at("peer_formula_mib"));
  EXPECT_EQ(report.at("failures")[0].at("reason"), "no compiler");
}

}  // namespace
}  // namespace tandem::report_test
