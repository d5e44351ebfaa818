#include "parallel/optim/parameter_update.h"

#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/instrument/fault_point.h"
#include "core/testing/statuses.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/learning_rate.h"
#include "parallel/optim/make_optimizer.h"

namespace tandem::parameter_update_test {
namespace {

struct Model {
  Model() : buffers(MakeFlatBuffers({{"w", w}})) {}
  void Backward(double gradient) {
    buffers[0]->ZeroGrad();
    w.mul(gradient).sum().backward();
  }
  at::Tensor w = at::ones({3}).requires_grad_();
  FlatBuffers buffers;
};

TEST(ParameterUpdateTest, ClipsByValueThenAsToldThenSteps) {
  Model model;
  UpdateOptions options;
  options.clip_value = 4;
  options.clip_norm = 1;
  auto update = ParameterUpdate::Create(options, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(100);
  update->ClipValues();
  EXPECT_EQ(model.w.grad()[0].item<double>(), 4);
  ASSERT_TRUE(
      update->Step(/*learning_rate=*/1, GradientNorms{/*averaged=*/8, 1}).ok());
  EXPECT_NEAR(model.w.grad()[0].item<double>(), 4.0 / 8, 1e-6);
  EXPECT_NEAR(model.w[0].item<double>(), 1 - 4.0 / 8, 1e-6);
}

TEST(ParameterUpdateTest, UnscalesAndTellsWhatIsNotFinite) {
  Model model;
  auto update = ParameterUpdate::Create({}, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  const at::Tensor inverse = at::full({}, 0.25, at::kFloat);
  const at::Tensor found_inf = at::zeros({}, at::kFloat);
  model.Backward(100);
  update->Unscale(inverse, found_inf);
  EXPECT_EQ(found_inf.item<float>(), 0);
  EXPECT_EQ(model.w.grad()[0].item<double>(), 25);
  model.Backward(std::numeric_limits<double>::infinity());
  update->Unscale(inverse, found_inf);
  EXPECT_EQ(found_inf.item<float>(), 1);
}

// One pass clips and steps: as clipping and then stepping, but for a rounding.
TEST(ParameterUpdateTest, ClipsInTheOptimizersPassAsPyTorchDoesBefore) {
  const std::vector<OptimizerOptions> optimizers = {
      SgdOptions{/*momentum=*/0.9}, AdamOptions(), AdamWOptions()};
  int compared = 0;
  for (const OptimizerOptions& optimizer : optimizers) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      for (const double norm : {0.5, 3.0, 1e9}) {
        UpdateOptions options;
        options.optimizer = optimizer;
        options.clip_norm = 1;
        const at::Tensor start = at::randn({37}, dtype);
        at::Tensor a = start.clone().requires_grad_();
        at::Tensor b = start.clone().requires_grad_();
        const FlatBuffers fused = MakeFlatBuffers({{"w", a}});
        const FlatBuffers apart = MakeFlatBuffers({{"w", b}});
        auto update = ParameterUpdate::Create(options, fused);
        auto alone = MakeOptimizer(optimizer, apart);
        for (int step = 0; step < 3; ++step) {
          const at::Tensor gradient = at::randn({37}, dtype);
          fused[0]->grads().narrow(0, 0, 37).copy_(gradient);
          apart[0]->grads().narrow(0, 0, 37).copy_(gradient);
          fused[0]->set_has_gradient(0, true);
          apart[0]->set_has_gradient(0, true);
          ASSERT_TRUE(update->Step(0.1, GradientNorms{norm, norm}).ok());
          ScaleGradients(apart, 1, norm);
          (*alone)->Step(0.1);
        }
        const double tolerance = dtype == at::kFloat ? 4e-6 : 1e-14;
        EXPECT_TRUE(a.grad().allclose(b.grad(), tolerance, 0)) << norm;
        EXPECT_TRUE(a.allclose(b, tolerance, tolerance)) << norm;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 18);
}

TEST(ParameterUpdateTest, ANormThatIsNotFiniteMakesGradientsNanOrZero) {
  for (const double norm : {std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    Model model;
    UpdateOptions options;
    options.clip_norm = 1;
    auto update = ParameterUpdate::Create(options, model.buffers);
    ASSERT_TRUE(update.ok()) << update.status();
    model.Backward(2);
    ASSERT_TRUE(update->Step(1, GradientNorms{norm, norm}).ok());
    const double gradient = model.w.grad()[0].item<double>();
    EXPECT_TRUE(std::isnan(norm) ? std::isnan(gradient) : gradient == 0);
  }
}

// 1e43 is more than a float32 holds.
TEST(ParameterUpdateTest, ClipsByAnyNormThatIsFinite) {
  Model model;
  UpdateOptions options;
  options.clip_norm = 1;
  auto update = ParameterUpdate::Create(options, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(0x1p126);
  ASSERT_TRUE(update->Step(1, GradientNorms{1e43, 1e43}).ok());
  EXPECT_NEAR(model.w.grad()[0].item<double>() * 1e43 / 0x1p126, 1, 1e-6);
}

TEST(ParameterUpdateTest, AParameterThatWasReplacedIsNamed) {
  Model model;
  auto update = ParameterUpdate::Create({}, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(2);
  model.w.set_data(at::ones({3}));
  EXPECT_THAT(update->Step(1, std::nullopt), Says("parameter w was replaced"));
}

TEST(ParameterUpdateTest, HasAFaultPointBeforeTheOptimizer) {
  Model model;
  auto update = ParameterUpdate::Create({}, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(2);
  Fault fault;
  fault.point = "before_optimizer";
  ArmFaults({fault});
  EXPECT_FALSE(update->Step(1, std::nullopt).ok());
  ArmFaults({});
  EXPECT_EQ(model.w[0].item<double>(), 1);
}

TEST(ParameterUpdateTest, OptionsOutOfRangeAreNamed) {
  Model model;
  using Change = std::function<void(UpdateOptions & options)>;
  const std::pair<Change, const char*> refusals[] = {
      {[](auto& o) { o.clip_norm = -1; }, "clip_norm"},
      {[](auto& o) { o.clip_norm_type = 0; }, "clip_norm_type"},
      {[](auto& o) { o.clip_value = std::numeric_limits<double>::quiet_NaN(); },
       "clip_value"},
      {[](auto& o) { o.grad_scaler.emplace().growth_factor = 0.5; },
       "growth_factor is 0.5"}};
  for (const auto& [change, says] : refusals) {
    UpdateOptions options;
    change(options);
    EXPECT_THAT(ParameterUpdate::Create(options, model.buffers).status(),
                InvalidArgument(says));
  }
}

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

// transformers' get_linear_schedule_with_warmup, with a floor.
TEST(LearningRate, FallsInALine) {
  LearningRateOptions options;
  options.learning_rate = 1;
  options.decay = LearningRateDecay::kLinear;
  options.total_steps = 4;
  ExpectNear(Rates(options, 6), {1, 0.75, 0.5, 0.25, 0, 0});
  options.warmup_steps = 2;
  options.total_steps = 6;
  options.final_learning_rate = 0.2;
  ExpectNear(Rates(options, 8), {0.5, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
}

TEST(LearningRate, IsStableUntilItFallsAtTheEnd) {
  LearningRateOptions options;
  options.learning_rate = 1;
  options.decay = LearningRateDecay::kWarmupStableDecay;
  options.warmup_steps = 2;
  options.total_steps = 9;
  options.decay_steps = 4;
  options.final_learning_rate = 0.2;
  ExpectNear(Rates(options, 11), {0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
  options.decay_style = DecayStyle::kSqrt;
  ExpectNear(Rates(options, 10),
             {0.5, 1, 1, 1, 1, 1, 0.6, 0.2 + 0.8 * (1 - std::sqrt(0.5)),
              0.2 + 0.8 * (1 - std::sqrt(0.75)), 0.2});
  options.decay_style = DecayStyle::kCosine;
  const double quarter = 0.4 * (1 + std::sqrt(0.5));
  ExpectNear(Rates(options, 10),
             {0.5, 1, 1, 1, 1, 1, 0.2 + quarter, 0.6, 1 - quarter, 0.2});
  // Where it follows the warm-up at once it is the cosine.
  options.decay_steps = 7;
  LearningRateOptions cosine = options;
  cosine.decay = LearningRateDecay::kCosine;
  EXPECT_EQ(Rates(options, 10), Rates(cosine, 10));
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
       "cosine decay over 0 steps, of which 0 are warm-up"},
      {[](Options& o) { o.decay = LearningRateDecay::kLinear; },
       "linear decay over 0 steps"},
      {[](Options& o) {
         o.decay = LearningRateDecay::kWarmupStableDecay;
         o.total_steps = 9;
       },
       "decay_steps is 0"},
      {[](Options& o) {
         o.decay = LearningRateDecay::kWarmupStableDecay;
         o.total_steps = 9;
         o.warmup_steps = 6;
         o.decay_steps = 4;
       },
       "over the last 4 of 9 steps, of which 6 are warm-up: they leave 3"},
  };
  for (const auto& [spoil, message] : cases) {
    Options options;
    spoil(options);
    const absl::Status status = ValidateLearningRate(options);
    EXPECT_THAT(status, InvalidArgument(message));
  }
}

}  // namespace
}  // namespace tandem::parameter_update_test
