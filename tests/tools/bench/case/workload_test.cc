#include "tools/bench/case/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem {
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
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("'vgg'"));
}

TEST(Workload, MayBeTrainedWithSgd) {
  const Workload sgd = WithSgd(*WorkloadNamed("gpt_tiny"), 0.5, 3);
  EXPECT_EQ(sgd.model, "gpt_tiny");
  EXPECT_EQ(sgd.optimizer, "sgd");
  EXPECT_EQ(sgd.learning_rate, 0.5);
  EXPECT_EQ(sgd.compared_steps, 3);
}

}  // namespace
}  // namespace tandem
