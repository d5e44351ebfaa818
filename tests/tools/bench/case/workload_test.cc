#include "tools/bench/case/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::workload_test {
namespace {

using testing::HasSubstr;

TEST(Workload, IsFoundByTheNameOfItsModel) {
  for (const char* name :
       {"mlp_small", "mlp_wide", "mlp_deep", "resnet18", "gpt_tiny"}) {
    const auto workload = WorkloadNamed(name);
    ASSERT_TRUE(workload.ok()) << workload.status();
    EXPECT_EQ(workload->model, name);
    EXPECT_GT(workload->batch_size, 0);
    EXPECT_GT(workload->steps, 0);
    EXPECT_GT(workload->compared_steps, 0);
  }
  const absl::Status unknown = WorkloadNamed("vgg").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("'vgg'; known: mlp_small, "));
}

// 6 x (multiplications of a token's step), by hand.
TEST(Workload, OperationsFollowTheTokens) {
  const Workload tiny = *WorkloadNamed("gpt_tiny");
  EXPECT_NEAR(tiny.gflop,
              128e-9 * 6 * (4 * 12 * 128 * 128 + 128 * 256 + 4 * 2 * 64 * 128),
              1e-9);
  const Workload gpt2 = *WorkloadNamed("gpt2");
  const double weights = 12. * 12 * 768 * 768 + 768. * 50257;
  EXPECT_NEAR(gpt2.gflop, 1024e-9 * 6 * (weights + 12. * 2 * 512 * 768), 1e-6);
  const Workload brief = WithTokens(gpt2, 256);
  EXPECT_EQ(brief.input_shape, (std::vector<int64_t>{256}));
  EXPECT_NEAR(brief.gflop, 256e-9 * 6 * (weights + 12. * 2 * 128 * 768), 1e-6);
}

TEST(Workload, MayBeTrainedWithSgd) {
  const Workload sgd = WithSgd(*WorkloadNamed("gpt_tiny"), 0.5, 3);
  EXPECT_EQ(sgd.model, "gpt_tiny");
  EXPECT_EQ(sgd.optimizer, "sgd");
  EXPECT_EQ(sgd.learning_rate, 0.5);
  EXPECT_EQ(sgd.compared_steps, 3);
}

}  // namespace
}  // namespace tandem::workload_test
