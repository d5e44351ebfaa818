#include "tools/trainer/settings/options.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::options_test {
namespace {

using ::testing::HasSubstr;

TEST(TrainOptionsTest, DefaultsAreValid) {
  EXPECT_TRUE(Validate(TrainOptions()).ok());
}

void MakePipeline(TrainOptions& options) {
  options.strategy = "pipeline";
  options.devices.devices_per_rank = 2;
}

TEST(TrainOptionsTest, APipelineNeedsNoSettingOfReplicas) {
  TrainOptions options;
  MakePipeline(options);
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  options.strategy = "auto";  // a model in parts, which may have replicas
  options.ddp.comm_hook = "fp16";
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
}

// With "auto" it is the number of ranks that makes a pipeline one of several.
TEST(TrainOptionsTest, SeveralPipelinesAverageWhatOneDoesNot) {
  TrainOptions options;
  options.pipeline.pipe = 2;
  options.ddp.bucket_cap_mb = 5;
  options.ddp.comm_hook = "fp16";
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  EXPECT_TRUE(CheckReplicas(options, 2).ok()) << CheckReplicas(options, 2);
  EXPECT_THAT(std::string(CheckReplicas(options, 1).message()),
              HasSubstr("--bucket_cap_mb=5 is for replicas, but a pipeline is "
                        "one replica"));
  options.ddp = DdpSettings();
  options.ddp.average_parameters_every = 4;
  options.ddp.static_graph = true;
  EXPECT_TRUE(CheckReplicas(options, 2).ok()) << CheckReplicas(options, 2);
  options.ddp.gradient_accumulation_steps = 2;
  EXPECT_THAT(std::string(CheckReplicas(options, 2).message()),
              HasSubstr("a pipeline accumulates over its microbatches"));
}

TEST(TrainOptionsTest, Fp16AloneScalesTheLoss) {
  TrainOptions options;
  EXPECT_FALSE(GradScalerOf(options).has_value());
  options.dtype = "bf16";
  options.reduce_dtype = "fp16";
  EXPECT_FALSE(GradScalerOf(options).has_value());
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  options.param_dtype = "fp16";
  options.init_scale = 1024;
  options.growth_interval = 5;
  ASSERT_TRUE(GradScalerOf(options).has_value());
  EXPECT_EQ(GradScalerOf(options)->init_scale, 1024);
  EXPECT_EQ(GradScalerOf(options)->growth_interval, 5);
  EXPECT_EQ(GradScalerOf(options)->backoff_factor, 0.5);
  options.reduce_dtype = "fp32";
  options.ddp.comm_hook = "powersgd";
  options.ddp.power_sgd_use_error_feedback = false;
  options.ddp.power_sgd_warm_start = false;
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
}

}  // namespace
}  // namespace tandem::options_test
