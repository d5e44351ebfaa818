// What options_optimizer.cc takes; what it refuses: options_refusal_test.cc.

#include <limits>

#include "gtest/gtest.h"
#include "tools/trainer/settings/options.h"

namespace tandem::options_optimizer_test {
namespace {

TEST(OptimizerSettings, NormsAndDecayMayBeOfAnyKind) {
  TrainOptions options;
  options.clip_grad_norm = 1;
  options.clip_grad_norm_type = std::numeric_limits<double>::infinity();
  options.error_if_nonfinite = true;
  options.weight_decay = 0.1;
  options.no_weight_decay_on = "bias$|^bn";
  options.ddp.comm_hook = "powersgd_bf16";
  options.ddp.power_sgd_warm_start = false;
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
}

TEST(OptimizerSettings, NanoGptsRecipeIsTaken) {
  TrainOptions options;
  options.optimizer = "adamw";
  options.adam_beta2 = 0.99;
  options.adam_eps = 1e-6;
  options.learning_rate = 1e-3;
  options.min_learning_rate = 1e-4;
  options.lr_schedule = "cosine";
  options.lr_warmup_steps = 100;
  options.weight_decay = 0.1;
  options.clip_grad_norm = 1;
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
}

TEST(OptimizerSettings, LearningRateFollowsTheOptimizerUnlessGiven) {
  TrainOptions options;
  EXPECT_EQ(ResolvedLearningRate(options), 0.05);
  options.optimizer = "adamw";
  EXPECT_EQ(ResolvedLearningRate(options), 0.001);
  options.learning_rate = 0.3;
  EXPECT_EQ(ResolvedLearningRate(options), 0.3);
  // Which is a rate, too: nothing is learned.
  options.learning_rate = 0;
  EXPECT_EQ(ResolvedLearningRate(options), 0);
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
}

}  // namespace
}  // namespace tandem::options_optimizer_test
