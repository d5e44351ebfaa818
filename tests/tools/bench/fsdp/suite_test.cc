#include "tools/bench/fsdp/suite.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::fsdp_suite_test {
namespace {

TEST(FsdpCases, HaveABatchForEachRankAndOneRecipe) {
  for (const int ranks : {2, 4}) {
    const std::vector<Case> cases = FsdpCases(ranks);
    ASSERT_EQ(cases.size(), 4u);
    for (const Case& each : cases) {
      EXPECT_EQ(each.layout.ranks(), ranks);
      EXPECT_EQ(each.workload.batch_size,
                WorkloadNamed(each.name)->batch_size * ranks);
      ASSERT_EQ(each.ours.size(), 1u);
      EXPECT_EQ(ToString(each.ours[0]), "1f1b 1 1 uniform fsdp");
    }
  }
}

}  // namespace
}  // namespace tandem::fsdp_suite_test
