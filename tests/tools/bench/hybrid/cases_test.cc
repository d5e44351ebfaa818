#include "tools/bench/hybrid/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/schedule/schedules.h"

namespace tandem::hybrid_cases_test {
namespace {

using testing::HasSubstr;

TEST(HybridCases, AreEachModelInEachLayout) {
  ASSERT_EQ(CasesNamed(HybridCases(), {})->size(), 15u);
  const auto one = CasesNamed(HybridCases(), {"gpt_tiny/2x2_ranks"});
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(one->front().layout.ranks(), 4);
  EXPECT_EQ(one->front().workload.batch_size, 8);
  EXPECT_EQ(CasesNamed(HybridCases(), {"resnet18", "mlp_deep/2x1"})->size(),
            6u);
  const absl::Status unknown =
      CasesNamed(HybridCases(), {"mlp_deep/3x1"}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("'mlp_deep/3x1'"));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("mlp_deep/2x1"));
}

TEST(HybridCases, LeaveOnlySettingsThatBothSidesCanRun) {
  for (const Case& each : HybridCases()) {
    EXPECT_EQ(each.workload.batch_size % each.layout.replicas, 0);
    const int64_t samples = each.workload.batch_size / each.layout.replicas;
    EXPECT_FALSE(each.ours.empty());
    for (const Setting& setting : each.ours) {
      EXPECT_LE(setting.microbatches, samples) << each.name;
      EXPECT_TRUE(
          MakeSchedule(setting.schedule, {each.layout.devices_of_replica(),
                                          setting.chunks, setting.microbatches})
              .ok())
          << each.name << " " << ToString(setting);
      EXPECT_TRUE(setting.recipe.empty());
    }
    EXPECT_FALSE(each.peers.empty());
    for (const Setting& setting : each.peers) {
      EXPECT_EQ(samples % setting.microbatches, 0) << each.name;
      EXPECT_EQ(setting.recipe.empty(), each.layout.replicas == 1);
    }
  }
}

TEST(HybridCases, CompareLossesOfASettingWithOneThatOursHas) {
  for (const Case& each : HybridCases()) {
    for (const Setting& peer : each.peers) {
      EXPECT_TRUE(std::any_of(each.ours.begin(), each.ours.end(),
                              [&](const Setting& ours) {
                                return ours.microbatches == peer.microbatches;
                              }))
          << each.name << " " << ToString(peer);
    }
  }
}

TEST(HybridCases, NeverHaveThePeerAverageWithoutSeeingGradients) {
  for (const Case& each : HybridCases()) {
    for (const Setting& setting : each.peers) {
      if (setting.schedule != "zero_bubble") continue;
      EXPECT_NE(setting.recipe, "ddp") << each.name;
    }
  }
}

}  // namespace
}  // namespace tandem::hybrid_cases_test
