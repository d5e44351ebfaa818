#include "tools/bench/gpu/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::cases_test {
namespace {

using testing::ElementsAre;

TEST(GpuCases, AreOfTheSizesThatOthersMeasure) {
  const std::vector<Case> cases = GpuCases();
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases[0].name, "resnet18");
  EXPECT_THAT(cases[0].workload.input_shape, ElementsAre(3, 224, 224));
  EXPECT_EQ(cases[0].workload.batch_size, 256);
  EXPECT_NEAR(cases[0].workload.gflop, 6 * 1.814, 0.03);
  EXPECT_EQ(cases[1].name, "gpt2");
  EXPECT_THAT(cases[1].workload.input_shape, ElementsAre(1024));
  EXPECT_EQ(cases[1].workload.batch_size, 8);
  EXPECT_EQ(cases[2].name, "mlp_small");
  EXPECT_EQ(cases[2].workload.batch_size, 32);
  for (const Case& each : cases) {
    EXPECT_EQ(each.layout.ranks(), 1);
    ASSERT_EQ(each.ours.size(), 1u);
    EXPECT_EQ(ToString(each.ours.front()), "1f1b 1 1 uniform static_graph");
  }
}

TEST(GpuCases, AreAsSmallAsIsAsked) {
  const std::vector<Case> cases =
      GpuCases({/*batch_size=*/3, /*image_size=*/32, /*tokens=*/17});
  EXPECT_THAT(cases[0].workload.input_shape, ElementsAre(3, 32, 32));
  EXPECT_THAT(cases[1].workload.input_shape, ElementsAre(17));
  for (const Case& each : cases) EXPECT_EQ(each.workload.batch_size, 3);
}

}  // namespace
}  // namespace tandem::cases_test
