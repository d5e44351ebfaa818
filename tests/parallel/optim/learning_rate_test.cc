#include "parallel/optim/learning_rate.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/testing/statuses.h"
#include "gtest/gtest.h"

namespace tandem::learning_rate_test {
namespace {

std::vector<double> Rates(const LearningRateOptions& options, int64_t steps) {
  std::vector<double> rates;
  for (int64_t s = 0; s < steps; ++s) {
    rates.push_back(LearningRateAt(options, s));
  }
  return rates;
}

void ExpectNear(const std::vector<double>& actual,
                const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-12) << "step " << i;
  }
}

TEST(LearningRate, IsConstantByDefault) {
  LearningRateOptions options;
  options.learning_rate = 0.5;
  ASSERT_TRUE(ValidateLearningRate(options).ok());
  ExpectNear(Rates(options, 3), {0.5, 0.5, 0.5});
}

TEST(LearningRate, RisesLinearlyDuringTheWarmUp) {
  LearningRateOptions options;
  options.learning_rate = 1;
  options.warmup_steps = 4;
  ExpectNear(Rates(options, 6), {0.25, 0.5, 0.75, 1, 1, 1});
  options.warmup_steps = 1;
  ExpectNear(Rates(options, 2), {1, 1});
}

TEST(LearningRate, FallsInStepsAfterTheWarmUp) {
  LearningRateOptions options;
  options.learning_rate = 8;
  options.decay = LearningRateDecay::kStep;
  options.decay_steps = 2;
  options.gamma = 0.5;
  ExpectNear(Rates(options, 7), {8, 8, 4, 4, 2, 2, 1});
  options.warmup_steps = 2;
  ExpectNear(Rates(options, 7), {4, 8, 8, 8, 4, 4, 2});
}

TEST(LearningRate, FollowsHalfACosine) {
  LearningRateOptions options;
  options.learning_rate = 1;
  options.decay = LearningRateDecay::kCosine;
  options.total_steps = 4;
  const double quarter = (1 + std::sqrt(0.5)) / 2;
  ExpectNear(Rates(options, 6), {1, quarter, 0.5, 1 - quarter, 0, 0});
  options.warmup_steps = 2;
  options.final_learning_rate = 0.2;
  ExpectNear(Rates(options, 6), {0.5, 1, 1, 0.6, 0.2, 0.2});
}

TEST(LearningRate, SaysWhichOptionIsWrong) {
  using Options = LearningRateOptions;
  const std::pair<void (*)(Options&), const char*> cases[] = {
      {[](Options& o) { o.learning_rate = -1; }, "learning_rate is -1"},
      {[](Options& o) {
         o.learning_rate = std::numeric_limits<double>::infinity();
       },
       "learning_rate is inf"},
      {[](Options& o) { o.final_learning_rate = -1; }, "final_learning_rate"},
      {[](Options& o) { o.gamma = std::nan(""); }, "gamma is nan"},
      {[](Options& o) { o.warmup_steps = -3; }, "warmup_steps is -3"},
      {[](Options& o) { o.decay = LearningRateDecay::kStep; },
       "decay_steps is 0"},
      {[](Options& o) { o.decay = LearningRateDecay::kCosine; },
       "over 0 steps, of which 0 are warm-up"},
  };
  for (const auto& [spoil, message] : cases) {
    Options options;
    spoil(options);
    const absl::Status status = ValidateLearningRate(options);
    EXPECT_THAT(status, InvalidArgument(message));
  }
}

}  // namespace
}  // namespace tandem::learning_rate_test
