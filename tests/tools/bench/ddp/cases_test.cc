#include "tools/bench/ddp/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::cases_test {
namespace {

TEST(DdpCases, AreFoundByName) {
  const std::vector<Case> all = DdpCases(2);
  EXPECT_EQ(CasesNamed(all, {})->size(), 4u);
  const auto chosen = CasesNamed(all, {"gpt_tiny", "mlp_small"});
  ASSERT_TRUE(chosen.ok());
  ASSERT_EQ(chosen->size(), 2u);
  EXPECT_EQ((*chosen)[0].name, "mlp_small");
  EXPECT_EQ((*chosen)[1].name, "gpt_tiny");
  const absl::Status unknown = CasesNamed(all, {"vgg"}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(unknown.message()),
            "unknown case 'vgg': known are mlp_small, mlp_wide, resnet18, "
            "gpt_tiny");
}

TEST(DdpCases, HaveABatchForEachRank) {
  for (int ranks : {2, 3}) {
    const Case small = DdpCases(ranks).front();
    EXPECT_EQ(small.workload.batch_size, 32 * ranks);
    EXPECT_EQ(small.layout.ranks(), ranks);
    EXPECT_EQ(small.layout.replicas, ranks);
    ASSERT_EQ(small.ours.size(), 2u);
    EXPECT_EQ(ToString(small.ours.front()), "1f1b 1 1 uniform ddp");
    EXPECT_EQ(ToString(small.ours.back()), "1f1b 1 1 uniform static_graph");
  }
}

}  // namespace
}  // namespace tandem::cases_test
