// The checks of options_optimizer.cc.

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trainer/settings/options.h"

namespace tandem::options_optimizer_test {
namespace {

using ::testing::HasSubstr;

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

struct BadOption {
  std::function<void(TrainOptions&)> spoil;
  const char* message;
};

class BadOptimizerTest : public testing::TestWithParam<BadOption> {};

TEST_P(BadOptimizerTest, IsRefusedByName) {
  TrainOptions options;
  GetParam().spoil(options);
  EXPECT_THAT(std::string(Validate(options).message()),
              HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadOptimizerTest,
    testing::Values(
        BadOption{[](TrainOptions& o) { o.lr_schedule = "step"; },
                  "needs --lr_step_size"},
        BadOption{[](TrainOptions& o) {
                    o.nesterov = true;
                    o.momentum = 0;
                  },
                  "--nesterov needs a momentum"},
        BadOption{[](TrainOptions& o) {
                    o.nesterov = true;
                    o.optimizer = "adam";
                  },
                  "--nesterov is sgd's"},
        BadOption{[](TrainOptions& o) {
                    o.momentum = 0.99;
                    o.optimizer = "adamw";
                  },
                  "--momentum=0.99 is sgd's, but --optimizer=adamw"},
        BadOption{[](TrainOptions& o) { o.lr_step_size = 1000; },
                  "--lr_step_size=1000 is of --lr_schedule=step, but "
                  "--lr_schedule=constant"},
        BadOption{[](TrainOptions& o) {
                    o.lr_gamma = 0.5;
                    o.lr_schedule = "cosine";
                  },
                  "--lr_gamma=0.5 is of --lr_schedule=step, but "
                  "--lr_schedule=cosine"},
        BadOption{[](TrainOptions& o) {
                    o.amsgrad = true;
                    o.optimizer = "sgd";
                  },
                  "--amsgrad=true is for adam and adamw, but --optimizer=sgd"},
        BadOption{[](TrainOptions& o) { o.clip_grad_norm_type = 0; },
                  "--clip_grad_norm_type=0: must be greater than 0"},
        BadOption{[](TrainOptions& o) { o.clip_grad_norm_type = std::nan(""); },
                  "--clip_grad_norm_type=nan"},
        BadOption{[](TrainOptions& o) { o.clip_grad_norm_type = 1; },
                  "give --clip_grad_norm=NORM"},
        BadOption{[](TrainOptions& o) { o.no_weight_decay_on = "bias"; },
                  "exceptions from --weight_decay, which is 0"},
        BadOption{[](TrainOptions& o) {
                    o.weight_decay = 0.1;
                    o.no_weight_decay_on = "bias(";
                  },
                  "--no_weight_decay_on=bias(: not a regular expression"},
        BadOption{[](TrainOptions& o) { o.adam_beta2 = 0.95; },
                  "--adam_beta2=0.95 is for adam and adamw, but "
                  "--optimizer=sgd"},
        BadOption{[](TrainOptions& o) {
                    o.optimizer = "adamw";
                    o.adam_beta1 = 1.5;
                  },
                  "--adam_beta1=1.5: must be from 0 to 1"},
        BadOption{[](TrainOptions& o) {
                    o.optimizer = "adam";
                    o.adam_eps = -1;
                  },
                  "--adam_eps=-1: must be at least 0"},
        BadOption{[](TrainOptions& o) { o.min_learning_rate = 1e-4; },
                  "--min_learning_rate=0.0001 is where --lr_schedule=cosine "
                  "ends, but --lr_schedule=constant"},
        BadOption{[](TrainOptions& o) {
                    o.lr_schedule = "cosine";
                    o.min_learning_rate = 0.5;
                  },
                  "is greater than the peak, --learning_rate=0.05"},
        BadOption{[](TrainOptions& o) {
                    o.lr_schedule = "cosine";
                    o.learning_rate = 0;
                    o.min_learning_rate = 1e-4;
                  },
                  "is greater than the peak, --learning_rate=0"}));

}  // namespace
}  // namespace tandem::options_optimizer_test
