#include "tools/trainer/options.h"

#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(TrainOptionsTest, DefaultsAreValid) {
  EXPECT_TRUE(Validate(TrainOptions()).ok());
}

struct BadOption {
  std::function<void(TrainOptions&)> spoil;
  const char* message;
};

class BadOptionTest : public testing::TestWithParam<BadOption> {};

TEST_P(BadOptionTest, IsRefusedByName) {
  TrainOptions options;
  GetParam().spoil(options);
  EXPECT_THAT(std::string(Validate(options).message()),
              HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadOptionTest,
    testing::Values(
        BadOption{[](TrainOptions& o) { o.epochs = 0; },
                  "--epochs=0: must be from 1"},
        BadOption{[](TrainOptions& o) { o.batch_size = -8; },
                  "--batch_size=-8: must be from 1"},
        BadOption{[](TrainOptions& o) { o.learning_rate = -0.5; },
                  "--learning_rate=-0.5: must be at least 0"},
        BadOption{[](TrainOptions& o) { o.timeout_s = 0; }, "--timeout=0"},
        BadOption{[](TrainOptions& o) { o.optimizer = "lion"; },
                  "--optimizer=lion: unknown; known: sgd, adam, adamw"},
        BadOption{[](TrainOptions& o) { o.device = "tpu"; },
                  "known: cpu, cuda"},
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
        BadOption{[](TrainOptions& o) { o.synthetic_samples = 7; },
                  "--dataset=fashion_mnist"},
        BadOption{[](TrainOptions& o) {
                    o.dataset = "synthetic";
                    o.data_dir = "/data";
                  },
                  "reads no files"},
        BadOption{[](TrainOptions& o) {
                    o.dataset = "synthetic_tokens";
                    o.synthetic_shape = {3, 8, 8};
                  },
                  "--synthetic_shape=3,8,8"},
        BadOption{[](TrainOptions& o) {
                    o.timeout_s = std::numeric_limits<double>::infinity();
                  },
                  "--timeout=inf"},
        BadOption{[](TrainOptions& o) { o.intra_op_threads = 5000000000; },
                  "--intra_op_threads"},
        BadOption{[](TrainOptions& o) { o.eval_only = true; },
                  "name it with --resume"},
        BadOption{[](TrainOptions& o) {
                    o.save_every = 5;
                    o.save_dir.clear();
                  },
                  "--save_dir is empty"}));

TEST(TrainOptionsTest, LearningRateFollowsTheOptimizerUnlessGiven) {
  TrainOptions options;
  EXPECT_EQ(ResolvedLearningRate(options), 0.05);
  options.optimizer = "adamw";
  EXPECT_EQ(ResolvedLearningRate(options), 0.001);
  options.learning_rate = 0.3;
  EXPECT_EQ(ResolvedLearningRate(options), 0.3);
}

}  // namespace
}  // namespace tandem
