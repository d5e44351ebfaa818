#include "core/fused/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

namespace tandem::cross_entropy_test {
namespace {

constexpr double kUnit = 0x1p-23;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  int64_t rows;
  int64_t classes;
  std::optional<int64_t> ignored;
};

class CrossEntropyKernelTest : public testing::TestWithParam<Case> {
 protected:
  at::Tensor logits_ = at::randn({GetParam().rows, GetParam().classes}) * 5;
  at::Tensor targets_ =
      at::randint(GetParam().classes, {GetParam().rows}, at::kLong);
  at::Tensor dlosses_ = at::randn({GetParam().rows});
};

at::Tensor Exact(const at::Tensor& logits, const at::Tensor& targets,
                 std::optional<int64_t> ignored) {
  return at::nll_loss(at::log_softmax(logits, 1), targets, /*weight=*/{},
                      at::Reduction::None, ignored.value_or(-100));
}

double Greatest(const at::Tensor& x) {
  return x.numel() == 0 ? 0 : x.abs().max().item<double>();
}

TEST_P(CrossEntropyKernelTest, LossesAreLibTorchsOfDoubles) {
  const auto [losses, log_sums, right] =
      FusedCrossEntropy(logits_, targets_, GetParam().ignored);
  const at::Tensor wide = logits_.to(at::kDouble);
  const at::Tensor exact = Exact(wide, targets_, GetParam().ignored);
  EXPECT_LE(Greatest(losses - exact), 8 * kUnit * (Greatest(exact) + 1));
  const at::Tensor exact_sums = wide.logsumexp(1);
  EXPECT_LE(Greatest(log_sums - exact_sums),
            8 * kUnit * (Greatest(exact_sums) + 1));
}

TEST_P(CrossEntropyKernelTest, RightAreThoseOfArgmax) {
  const auto ignored = GetParam().ignored;
  const at::Tensor right =
      std::get<2>(FusedCrossEntropy(logits_, targets_, ignored));
  at::Tensor expected = logits_.argmax(1).eq(targets_);
  if (ignored) expected = expected.logical_and(targets_.ne(*ignored));
  EXPECT_TRUE(at::equal(right, expected));
}

TEST_P(CrossEntropyKernelTest, BackwardIsLibTorchsOfDoubles) {
  const auto ignored = GetParam().ignored;
  const auto [losses, log_sums, right] =
      FusedCrossEntropy(logits_, targets_, ignored);
  const at::Tensor dx =
      FusedCrossEntropyBackward(dlosses_, logits_, targets_, log_sums, ignored);
  const at::Tensor wide = logits_.to(at::kDouble).detach().requires_grad_(true);
  Exact(wide, targets_, ignored).backward(dlosses_.to(at::kDouble));
  // An exponent's rounding is the sum's: up to 30 or so.
  EXPECT_LE(Greatest(dx - wide.grad()), 32 * kUnit * Greatest(dlosses_));
}

TEST_P(CrossEntropyKernelTest, Bf16) {
  const auto ignored = GetParam().ignored;
  const at::Tensor narrow = logits_.to(at::kBFloat16);
  const at::Tensor wide = narrow.to(at::kFloat);
  const auto of_narrow = FusedCrossEntropy(narrow, targets_, ignored);
  const auto of_wide = FusedCrossEntropy(wide, targets_, ignored);
  EXPECT_TRUE(at::equal(std::get<0>(of_narrow), std::get<0>(of_wide)));
  EXPECT_TRUE(at::equal(std::get<2>(of_narrow), std::get<2>(of_wide)));
  const at::Tensor& sums = std::get<1>(of_wide);
  EXPECT_TRUE(at::equal(
      FusedCrossEntropyBackward(dlosses_, narrow, targets_, sums, ignored),
      FusedCrossEntropyBackward(dlosses_, wide, targets_, sums, ignored)
          .to(at::kBFloat16)));
}

TEST_P(CrossEntropyKernelTest, ThreadsChangeNoBits) {
  const auto ignored = GetParam().ignored;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = FusedCrossEntropy(logits_, targets_, ignored);
  at::set_num_threads(3);
  const auto three = FusedCrossEntropy(logits_, targets_, ignored);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(std::get<0>(one), std::get<0>(three)));
  EXPECT_TRUE(at::equal(std::get<1>(one), std::get<1>(three)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, CrossEntropyKernelTest,
                         testing::Values(Case{0, 3, {}}, Case{1, 1, {}},
                                         Case{7, 13, {}}, Case{7, 13, 4},
                                         Case{131, 256, 0},
                                         Case{3, 20011, {}}));

at::Tensor Targets(std::initializer_list<int64_t> targets) {
  return at::tensor(targets, at::kLong);
}

TEST(CrossEntropyRowsTest, OfEqualLogitsTheFirstIsTheGreatest) {
  const at::Tensor logits = at::full({3, 40}, 2.f);
  const auto right =
      std::get<2>(FusedCrossEntropy(logits, Targets({0, 1, 39}), {}));
  EXPECT_TRUE(right[0].item<bool>());
  EXPECT_FALSE(right[1].item<bool>());
  EXPECT_FALSE(right[2].item<bool>());
}

TEST(CrossEntropyRowsTest, WhatIsMaskedHasNoProbability) {
  at::Tensor logits = at::randn({1, 40});
  logits[0][7] = -kInfinity;
  const auto [losses, sums, right] =
      FusedCrossEntropy(logits, Targets({3}), {});
  EXPECT_TRUE(std::isfinite(losses.item<float>()));
  const at::Tensor dx =
      FusedCrossEntropyBackward(at::ones({1}), logits, Targets({3}), sums, {});
  EXPECT_EQ(dx[0][7].item<float>(), 0);
}

TEST(CrossEntropyRowsTest, ANanIsTheGreatestAndStays) {
  at::Tensor logits = at::randn({2, 40});
  logits[1][7] = NAN;
  const auto [losses, sums, right] =
      FusedCrossEntropy(logits, Targets({7, 7}), {});
  EXPECT_TRUE(std::isfinite(losses[0].item<float>()));
  EXPECT_TRUE(std::isnan(losses[1].item<float>()));
  EXPECT_TRUE(right[1].item<bool>());
}

TEST(CrossEntropyRowsTest, GreatLogitsDoNotOverflow) {
  const at::Tensor logits = at::tensor({1e30f, 0.f, -1e30f}).unsqueeze(0);
  const auto losses = std::get<0>(FusedCrossEntropy(logits, Targets({0}), {}));
  EXPECT_EQ(losses.item<float>(), 0);
}

TEST(CrossEntropyRowsTest, WhatDoesNotFit) {
  const at::Tensor logits = at::randn({2, 3});
  EXPECT_THROW(FusedCrossEntropy(logits, Targets({0}), {}), c10::Error);
  EXPECT_THROW(FusedCrossEntropy(logits, Targets({0, 3}), {}), c10::Error);
  EXPECT_THROW(FusedCrossEntropy(logits, Targets({0, -1}), {}), c10::Error);
  EXPECT_THROW(FusedCrossEntropy(logits.to(at::kDouble), Targets({0, 1}), {}),
               c10::Error);
  EXPECT_NO_THROW(FusedCrossEntropy(logits, Targets({0, -1}), -1));
}

}  // namespace
}  // namespace tandem::cross_entropy_test
