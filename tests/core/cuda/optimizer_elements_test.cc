// The arithmetic of the GPU's fused steps, on the host, against ATen's.

#include "core/cuda/optimizer_elements.h"

#include <ATen/Context.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tandem::optimizer_elements_test {
namespace {

constexpr int kLength = 1037;
constexpr int kSteps = 5;
constexpr float kRate = 0.01f;
constexpr float kEps = 0.01f;  // so great that it is seen

// Roundings of a step are relative to what it adds, which is about kRate, and
// to the value.
constexpr double kTolerance = kSteps * 8 * 6e-8;

// Values, gradients and two states.
struct Parameters {
  at::Tensor values, first, second;
};

Parameters MakeParameters(int states) {
  at::manual_seed(3);
  Parameters made;
  made.values = at::randn({kLength});
  if (states > 0) made.first = at::zeros({kLength});
  if (states > 1) made.second = at::zeros({kLength});
  return made;
}

at::Tensor GradsOf(int step) {
  at::manual_seed(100 + step);
  return at::randn({kLength}).mul_(3);
}

template <typename Step>
void StepAll(const Step& step, const at::Tensor& grads, Parameters& of) {
  float none = 0;
  for (int i = 0; i < kLength; ++i) {
    float* first = of.first.defined() ? of.first.data_ptr<float>() + i : &none;
    float* second =
        of.second.defined() ? of.second.data_ptr<float>() + i : &none;
    step(grads.data_ptr<float>()[i], of.values.data_ptr<float>()[i], *first,
         *second);
  }
}

double Difference(const at::Tensor& a, const at::Tensor& b) {
  double greatest = 0;
  for (int i = 0; i < kLength; ++i) {
    const double one = a.data_ptr<float>()[i], other = b.data_ptr<float>()[i];
    greatest =
        std::max(greatest, std::abs(one - other) / (1 + std::abs(other)));
  }
  return greatest;
}

AdamStep Adam(int step, float weight_decay, bool decoupled) {
  AdamStep adam;
  adam.learning_rate = kRate;
  adam.rest_of_beta1 = 0.1f;
  adam.beta2 = 0.999f;
  adam.rest_of_beta2 = 0.001f;
  adam.eps = kEps;
  adam.weight_decay = weight_decay;
  adam.decoupled = decoupled;
  adam.bias_correction1 = static_cast<float>(1 - std::pow(0.9, step));
  adam.bias_correction2_root =
      static_cast<float>(std::sqrt(1 - std::pow(0.999, step)));
  return adam;
}

class AdamStepTest : public testing::TestWithParam<bool> {};

TEST_P(AdamStepTest, EqualsAtensFusedStep) {
  const bool decoupled = GetParam();
  Parameters mine = MakeParameters(2), atens = MakeParameters(2);
  for (int step = 1; step <= kSteps; ++step) {
    const at::Tensor grads = GradsOf(step);
    StepAll(Adam(step, 0.1f, decoupled), grads, mine);
    const at::Tensor number = at::full({}, step, at::kFloat);
    if (decoupled) {
      at::_fused_adamw_({atens.values}, {grads}, {atens.first}, {atens.second},
                        {}, {number}, kRate, 0.9, 0.999, 0.1, kEps, false,
                        false);
    } else {
      at::_fused_adam_({atens.values}, {grads}, {atens.first}, {atens.second},
                       {}, {number}, kRate, 0.9, 0.999, 0.1, kEps, false,
                       false);
    }
  }
  EXPECT_LT(Difference(mine.values, atens.values), kTolerance);
  EXPECT_LT(Difference(mine.first, atens.first), kTolerance);
  EXPECT_LT(Difference(mine.second, atens.second), kTolerance);
  // The two kinds of decay are further apart than that.
  Parameters other = MakeParameters(2);
  for (int step = 1; step <= kSteps; ++step) {
    StepAll(Adam(step, 0.1f, !decoupled), GradsOf(step), other);
  }
  EXPECT_GT(Difference(other.values, atens.values), 10 * kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Decay, AdamStepTest, testing::Bool());

// Float's own difference of 1 and 0.99999 is off by 1.4e-3, in each step.
TEST(AdamStepBetasTest, WhatTheyLeaveIsRoundedOnce) {
  constexpr double kBeta = 0.99999;
  AdamStep adam;
  adam.beta2 = static_cast<float>(kBeta);
  adam.rest_of_beta2 = static_cast<float>(1 - kBeta);
  float value = 0, average = 0, squares = 0;
  double expected = 0;
  for (int i = 0; i < 1000; ++i) {
    adam(/*grad=*/1, value, average, squares);
    expected = kBeta * expected + (1 - kBeta);
  }
  EXPECT_NEAR(squares / expected, 1, 2e-4);
}

struct SgdCase {
  float momentum, dampening, weight_decay;
  bool nesterov;
};

class SgdStepTest : public testing::TestWithParam<SgdCase> {};

TEST_P(SgdStepTest, EqualsAtensFusedStep) {
  const SgdCase& with = GetParam();
  const int states = with.momentum != 0 ? 1 : 0;
  Parameters mine = MakeParameters(states), atens = MakeParameters(states);
  for (int step = 1; step <= kSteps; ++step) {
    SgdStep sgd{kRate,
                with.momentum,
                1 - with.dampening,
                with.weight_decay,
                with.nesterov,
                /*is_first=*/step == 1};
    const at::Tensor grads = GradsOf(step);
    StepAll(sgd, grads, mine);
    std::vector<at::Tensor> momenta;
    if (states > 0) momenta.push_back(atens.first);
    at::_fused_sgd_({atens.values}, {grads}, momenta, with.weight_decay,
                    with.momentum, kRate, with.dampening, with.nesterov,
                    /*maximize=*/false, /*is_first_step=*/step == 1);
  }
  EXPECT_LT(Difference(mine.values, atens.values), kTolerance);
  if (states > 0) {
    EXPECT_LT(Difference(mine.first, atens.first), kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Options, SgdStepTest,
                         testing::Values(SgdCase{0, 0, 0, false},
                                         SgdCase{0, 0, 0.1f, false},
                                         SgdCase{0.9f, 0, 0.1f, false},
                                         SgdCase{0.9f, 0.5f, 0, false},
                                         SgdCase{0.9f, 0, 0.1f, true}));

TEST(FactorOfTest, UnscalesAndClips) {
  // Scaled gradients of norm 12, by 4: those of the loss have 3.
  const GradientFactor whole = FactorOf(144, {/*inverse_scale=*/0.25f, 0});
  EXPECT_EQ(whole.norm, 3);
  EXPECT_EQ(whole.factor, 0.25f);
  EXPECT_EQ(whole.skip, 0);
  EXPECT_EQ(FactorOf(144, {0.25f, /*max_norm=*/4}).factor, 0.25f);
  EXPECT_FLOAT_EQ(FactorOf(144, {0.25f, 1.5f}).factor,
                  0.25f * (1.5f / (3 + 1e-6f)));
  EXPECT_EQ(FactorOf(0, {1, 1}).factor, 1);
}

// In float it would be infinite, and nothing be left of the gradients.
TEST(FactorOfTest, ANormBeyondFloatClipsAsAnyOther) {
  const double sum = 2 * 3e38 * 3e38;
  for (const float inverse_scale : {1 / 65536.0f, 1.0f}) {
    const GradientFactor found = FactorOf(sum, {inverse_scale, 1});
    EXPECT_EQ(found.skip, 0);
    EXPECT_EQ(std::isfinite(found.norm), inverse_scale < 1);
    EXPECT_NEAR(found.factor * std::sqrt(sum), 1, 1e-4) << inverse_scale;
  }
}

TEST(FactorOfTest, WhatIsNotFiniteIsSkipped) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_NE(FactorOf(kInfinity, {}).skip, 0);
  EXPECT_NE(FactorOf(std::nan(""), {}).skip, 0);
  // Squares of the greatest float32, a million of them.
  const double greatest = std::numeric_limits<float>::max();
  EXPECT_EQ(FactorOf(1e6 * greatest * greatest, {}).skip, 0);
}

}  // namespace
}  // namespace tandem::optimizer_elements_test
