#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/fused/cross_entropy.h"
#include "core/fused/layer_norm.h"

namespace tandem::row_wise_test {
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

at::Tensor ExactLosses(const at::Tensor& logits, const at::Tensor& targets,
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
  const at::Tensor exact = ExactLosses(wide, targets_, GetParam().ignored);
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
  ExactLosses(wide, targets_, ignored).backward(dlosses_.to(at::kDouble));
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

using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr double kEps = 1e-5;

using Sizes = std::vector<int64_t>;

std::string Name(const testing::TestParamInfo<Sizes>& info) {
  std::string name = "Of";
  for (int64_t size : info.param) name += "_" + std::to_string(size);
  return name;
}

class LayerNormTest : public testing::TestWithParam<Sizes> {
 protected:
  int64_t columns() const { return GetParam().back(); }

  // Means that are not small beside the deviation.
  at::Tensor x_ = at::randn(GetParam()) + 3;
  at::Tensor weight_ = at::rand({columns()}) + 0.5;
  at::Tensor bias_ = at::randn({columns()});
  at::Tensor dy_ = at::randn(GetParam());
};

at::Tensor Wide(const at::Tensor& x) { return x.to(at::kDouble); }

// What is allowed, in units of the last place of the greatest of the row's
// terms: those of sums of n terms, and a few more.
void ExpectNear(const at::Tensor& actual, const at::Tensor& exact,
                double units) {
  ASSERT_EQ(actual.sizes(), exact.sizes());
  if (actual.numel() == 0) return;
  const double greatest = exact.abs().max().item<double>() + 1;
  EXPECT_LE((Wide(actual) - exact).abs().max().item<double>(),
            units * kUnit * greatest);
}

Results ExactLayerNorm(const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias) {
  return at::native_layer_norm(Wide(x), weight.sizes(), Wide(weight),
                               Wide(bias), kEps);
}

TEST_P(LayerNormTest, IsLibTorchsOfDoubles) {
  const auto [y, mean, rstd] = FusedLayerNorm(x_, weight_, bias_, kEps);
  const auto [exact, exact_mean, exact_rstd] =
      ExactLayerNorm(x_, weight_, bias_);
  ExpectNear(y, exact, 16);
  ExpectNear(mean, exact_mean.flatten(), 4);
  ExpectNear(rstd, exact_rstd.flatten(), 16);
}

TEST_P(LayerNormTest, BackwardIsLibTorchsOfDoubles) {
  const auto [y, mean, rstd] = FusedLayerNorm(x_, weight_, bias_, kEps);
  const auto [exact_y, exact_mean, exact_rstd] =
      ExactLayerNorm(x_, weight_, bias_);
  const auto [dx, dweight, dbias] =
      FusedLayerNormBackward(dy_, x_, mean, rstd, weight_, true, true);
  const auto [exact_dx, exact_dweight, exact_dbias] =
      at::native_layer_norm_backward(Wide(dy_), Wide(x_), weight_.sizes(),
                                     exact_mean, exact_rstd, Wide(weight_),
                                     Wide(bias_), {true, true, true});
  ExpectNear(dx, exact_dx, 64);
  // Each element has two factors with an error of their own.
  const double terms = std::sqrt(static_cast<double>(dy_.numel()) / columns());
  ExpectNear(dweight, exact_dweight, 16 + 4 * terms);
  ExpectNear(dbias, exact_dbias, 16 + 4 * terms);
}

TEST_P(LayerNormTest, PartsOfBackwardHaveTheBitsOfTheWhole) {
  const auto [y, mean, rstd] = FusedLayerNorm(x_, weight_, bias_, kEps);
  const auto [dx, dweight, dbias] =
      FusedLayerNormBackward(dy_, x_, mean, rstd, weight_, true, true);
  const auto input =
      FusedLayerNormBackward(dy_, x_, mean, rstd, weight_, true, false);
  const auto weights =
      FusedLayerNormBackward(dy_, x_, mean, rstd, weight_, false, true);
  EXPECT_TRUE(at::equal(std::get<0>(input), dx));
  EXPECT_FALSE(std::get<1>(input).defined());
  EXPECT_FALSE(std::get<0>(weights).defined());
  EXPECT_TRUE(at::equal(std::get<1>(weights), dweight));
  EXPECT_TRUE(at::equal(std::get<2>(weights), dbias));
}

TEST_P(LayerNormTest, Bf16IsTheRoundedResultOfFloats) {
  const at::Tensor x = x_.to(at::kBFloat16);
  const at::Tensor dy = dy_.to(at::kBFloat16);
  const auto [y, mean, rstd] = FusedLayerNorm(x, weight_, bias_, kEps);
  const auto [wide, wide_mean, wide_rstd] =
      FusedLayerNorm(x.to(at::kFloat), weight_, bias_, kEps);
  EXPECT_TRUE(at::equal(y, wide.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(mean, wide_mean));
  const auto narrow =
      FusedLayerNormBackward(dy, x, mean, rstd, weight_, true, true);
  const auto of_floats = FusedLayerNormBackward(
      dy.to(at::kFloat), x.to(at::kFloat), mean, rstd, weight_, true, true);
  EXPECT_TRUE(
      at::equal(std::get<0>(narrow), std::get<0>(of_floats).to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(std::get<1>(narrow), std::get<1>(of_floats)));
}

TEST_P(LayerNormTest, ThreadsChangeNoBits) {
  const int threads = at::get_num_threads();
  std::array<Results, 2> forward;
  std::array<Results, 2> backward;
  for (int i = 0; i < 2; ++i) {
    at::set_num_threads(i == 0 ? 1 : 3);
    forward[i] = FusedLayerNorm(x_, weight_, bias_, kEps);
    const auto& [y, mean, rstd] = forward[i];
    backward[i] =
        FusedLayerNormBackward(dy_, x_, mean, rstd, weight_, true, true);
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(std::get<0>(forward[0]), std::get<0>(forward[1])));
  EXPECT_TRUE(at::equal(std::get<0>(backward[0]), std::get<0>(backward[1])));
  EXPECT_TRUE(at::equal(std::get<1>(backward[0]), std::get<1>(backward[1])));
  EXPECT_TRUE(at::equal(std::get<2>(backward[0]), std::get<2>(backward[1])));
}

INSTANTIATE_TEST_SUITE_P(Shapes, LayerNormTest,
                         testing::Values(Sizes{0, 5}, Sizes{1, 1}, Sizes{7, 13},
                                         Sizes{2, 3, 16}, Sizes{67, 768},
                                         Sizes{3, 20011}),
                         Name);

TEST(LayerNormErrorsTest, WhatDoesNotFit) {
  const at::Tensor x = at::randn({2, 3});
  const at::Tensor three = at::randn({3});
  EXPECT_THROW(FusedLayerNorm(x, at::randn({2}), three, kEps), c10::Error);
  EXPECT_THROW(FusedLayerNorm(x, three, three.to(at::kDouble), kEps),
               c10::Error);
  EXPECT_THROW(FusedLayerNorm(Wide(x), three, three, kEps), c10::Error);
}

TEST(LayerNormErrorsTest, ANanStaysInItsRow) {
  at::Tensor x = at::randn({2, 20});
  x[1][17] = NAN;
  const at::Tensor one = at::ones({20});
  const at::Tensor y = std::get<0>(FusedLayerNorm(x, one, one, kEps));
  EXPECT_FALSE(y[0].isnan().any().item<bool>());
  EXPECT_TRUE(y[1].isnan().all().item<bool>());
}

}  // namespace
}  // namespace tandem::row_wise_test
