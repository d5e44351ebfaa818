// The parity tests' tolerances are not too wide: mistakes show.

#include "tests/parallel/ddp/parity_tolerance.h"

#include <ATen/TensorOperators.h>

#include "gtest/gtest.h"
#include "tests/parallel/ddp/parity_by_hand.h"
#include "tests/parallel/ddp/parity_check.h"

namespace tandem::parity_tolerance_test {
namespace {

// The elements that are further away than they may be.
int64_t Beyond(double tolerance, const at::Tensor& actual,
               const at::Tensor& expected) {
  return actual.sub(expected).abs().gt(tolerance).sum().item<int64_t>();
}

// By how much a rate that is a hundredth too high shows in the final weights.
int64_t BeyondWithAnotherRate(ParityCase job) {
  const ParityTolerance tolerance = ToleranceOf(job, 2);
  const ParityResult pythons = PythonsResult(job, 2, 0);
  EXPECT_EQ(Beyond(tolerance.weights, TrainByHand(job)[0].final, pythons.final),
            0);
  job.learning_rate *= 1.01;
  return Beyond(tolerance.weights, TrainByHand(job)[0].final, pythons.final);
}

TEST(ParityTolerance, ALearningRateOffByAHundredthShows) {
  ParityCase job("plain");
  EXPECT_GT(BeyondWithAnotherRate(job), 250);  // of 302
  job.name = "adamw";
  job.optimizer = ParityAdamW();
  EXPECT_GT(BeyondWithAnotherRate(job), 50);
}

TEST(ParityTolerance, AnotherWeightDecayShows) {
  ParityCase job("plain");
  const ParityTolerance tolerance = ToleranceOf(job, 2);
  const at::Tensor pythons = PythonsResult(job, 2, 0).final;
  SgdOptions sgd;
  sgd.momentum = 0.9;
  sgd.weight_decay = 0.0101;
  job.optimizer = sgd;
  EXPECT_GT(Beyond(tolerance.weights, TrainByHand(job)[0].final, pythons), 50);
}

// Gradients would be as far away as they are from 0.
TEST(ParityTolerance, ASumInPlaceOfAMeanShows) {
  for (const char* name : {"plain", "fp16_hook", "bf16_hook"}) {
    for (const int ranks : {2, 3, 4}) {
      ParityCase job(name);
      if (job.name == "fp16_hook") job.sent_as = at::kHalf;
      if (job.name == "bf16_hook") job.sent_as = at::kBFloat16;
      const at::Tensor mean = PythonsResult(job, ranks, 0).first_gradients;
      EXPECT_GT(Beyond(ToleranceOf(job, ranks).gradients, mean * ranks, mean),
                200)
          << name << ", " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace tandem::parity_tolerance_test
