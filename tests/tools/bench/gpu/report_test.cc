#include "tools/bench/gpu/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tools/bench/gpu/cases.h"

namespace tandem::report_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

CaseResult ExampleResult() {
  CaseResult result;
  result.bench = GpuCases().front();  // 256 samples
  result.ours.name = "tandem";
  result.ours.step_ms = {64, 64, 80};
  result.ours.peak_mib = 100;
  SideResult eager;
  eager.name = "eager";
  eager.step_ms = {128, 128, 128};
  eager.peak_mib = 150;
  SideResult graphs;
  graphs.name = "cuda_graphs";
  graphs.failure = "no memory";
  result.peers = {eager, graphs};
  return result;
}

TEST(GpuTable, HasRatesAndMemoryAndWhoDidNotRun) {
  const std::string table = GpuTable({ExampleResult()});
  EXPECT_THAT(table, HasSubstr("4000 / 2000"));
  EXPECT_THAT(table, HasSubstr("100 / 150"));
  EXPECT_THAT(table, HasSubstr("2.00"));
  EXPECT_THAT(table, HasSubstr("1.60 to 2.00"));
  EXPECT_THAT(table, HasSubstr("cuda_graphs: did not run: no memory"));
}

TEST(GpuJson, SaysOnWhatItWasMeasured) {
  const json report = GpuJson({ExampleResult()}, "cpu");
  EXPECT_EQ(report.at("device"), "cpu");
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json& eager = report.at("cases")[0];
  EXPECT_EQ(eager.at("peer"), "eager");
  EXPECT_EQ(eager.at("ratio"), 2.0);
  EXPECT_EQ(eager.at("ours_samples_per_s"), 4000.0);
  EXPECT_EQ(eager.at("peer_samples_per_s"), 2000.0);
  EXPECT_EQ(eager.at("ours_peak_mib"), 100.0);
  EXPECT_EQ(eager.at("peer_peak_mib"), 150.0);
  EXPECT_EQ(report.at("failures")[0].at("reason"), "no memory");
}

}  // namespace
}  // namespace tandem::report_test
