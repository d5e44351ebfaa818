#include "tools/bench/fsdp/suite.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/bench/sides.h"

namespace tandem::fsdp_suite_test {
namespace {

using nlohmann::json;

TEST(FsdpCases, HaveABatchForEachRankAndOneRecipe) {
  for (const int ranks : {2, 4}) {
    const std::vector<Case> cases = FsdpCases(ranks);
    ASSERT_EQ(cases.size(), 3u);
    for (const Case& each : cases) {
      EXPECT_EQ(each.layout.ranks(), ranks);
      EXPECT_EQ(each.workload.batch_size,
                WorkloadNamed(each.name)->batch_size * ranks);
      ASSERT_EQ(each.ours.size(), 1u);
      EXPECT_EQ(ToString(each.ours[0]), "1f1b 1 1 uniform fsdp");
    }
  }
}

TEST(FsdpTables, HaveMemoryBesideTimes) {
  CaseResult result;
  result.bench = FsdpCases(2)[1];
  result.ours = MeasuredSide("tandem", {10, 20, 12}, 300);
  result.peers = {MeasuredSide("fsdp", {30, 40, 24}, 700)};
  const json report = TablesJson(FsdpTables({result}));
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json& row = report.at("cases")[0];
  EXPECT_EQ(row.at("name"), "gpt_tiny");
  EXPECT_EQ(row.at("ratio"), 2);
  EXPECT_EQ(row.at("ours_mib"), 300);
  EXPECT_EQ(row.at("peer_mib"), 700);
}

}  // namespace
}  // namespace tandem::fsdp_suite_test
