#include "core/fused/bias_gelu.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::bias_gelu_test {
namespace {

constexpr double kUnit = 0x1p-23;

const char* NameOf(GeluForm form) {
  return form == GeluForm::kTanh ? "tanh" : "none";
}

struct Case {
  std::vector<int64_t> sizes;
  GeluForm form;
};

std::string Name(const testing::TestParamInfo<Case>& info) {
  std::string name = NameOf(info.param.form);
  for (int64_t size : info.param.sizes) name += "_" + std::to_string(size);
  return name;
}

class BiasGeluTest : public testing::TestWithParam<Case> {
 protected:
  // Values up to about 15.
  at::Tensor x_ = at::randn(GetParam().sizes) * 4;
  at::Tensor bias_ = at::randn({GetParam().sizes.back()});
  at::Tensor dy_ = at::randn(GetParam().sizes);
};

// The value in doubles, by LibTorch.
at::Tensor ExactValue(const at::Tensor& x, const at::Tensor& bias,
                      GeluForm form) {
  return at::gelu(x.to(at::kDouble) + bias.to(at::kDouble), NameOf(form));
}

at::Tensor ExactSlope(const at::Tensor& dy, const at::Tensor& x,
                      const at::Tensor& bias, GeluForm form) {
  return at::gelu_backward(dy.to(at::kDouble),
                           x.to(at::kDouble) + bias.to(at::kDouble),
                           NameOf(form));
}

void ExpectNear(const at::Tensor& actual, const at::Tensor& exact,
                const at::Tensor& allowed) {
  ASSERT_EQ(actual.sizes(), exact.sizes());
  if (actual.numel() == 0) return;
  const at::Tensor excess = (actual.to(at::kDouble) - exact).abs() - allowed;
  EXPECT_LE(excess.max().item<double>(), 0)
      << "difference " << (actual - exact).abs().max().item<double>();
}

TEST_P(BiasGeluTest, IsWithinItsBound) {
  const at::Tensor y = BiasGelu(x_, bias_, GetParam().form);
  const at::Tensor exact = ExactValue(x_, bias_, GetParam().form);
  const at::Tensor sum = (x_.to(at::kDouble) + bias_).abs();
  ExpectNear(y, exact, 4 * kUnit * at::max(exact.abs(), sum / 8));
}

TEST_P(BiasGeluTest, BackwardIsWithinItsBound) {
  const auto [dx, dbias] = BiasGeluBackward(dy_, x_, bias_, GetParam().form);
  const at::Tensor exact = ExactSlope(dy_, x_, bias_, GetParam().form);
  ExpectNear(dx, exact, 8 * kUnit * dy_.abs().to(at::kDouble));
  const int64_t columns = bias_.size(0);
  if (columns == 0) return;
  const at::Tensor rows = exact.reshape({-1, columns});
  // The error of a sum of n terms: half a unit for each of its levels and
  // terms.
  const auto terms = static_cast<double>(rows.size(0));
  ExpectNear(dbias, rows.sum(0),
             (8 + terms / 2) * kUnit *
                 dy_.abs().to(at::kDouble).reshape({-1, columns}).sum(0));
}

TEST_P(BiasGeluTest, Bf16IsTheRoundedResultOfFloats) {
  const at::Tensor x = x_.to(at::kBFloat16);
  const at::Tensor bias = bias_.to(at::kBFloat16);
  const at::Tensor dy = dy_.to(at::kBFloat16);
  const GeluForm form = GetParam().form;
  EXPECT_TRUE(at::equal(
      BiasGelu(x, bias, form),
      BiasGelu(x.to(at::kFloat), bias.to(at::kFloat), form).to(at::kBFloat16)));
  const auto [dx, dbias] = BiasGeluBackward(dy, x, bias, form);
  const auto [wide_dx, wide_dbias] = BiasGeluBackward(
      dy.to(at::kFloat), x.to(at::kFloat), bias.to(at::kFloat), form);
  EXPECT_TRUE(at::equal(dx, wide_dx.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(dbias, wide_dbias));
}

TEST_P(BiasGeluTest, ThreadsChangeNoBits) {
  const GeluForm form = GetParam().form;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor y = BiasGelu(x_, bias_, form);
  const auto [dx, dbias] = BiasGeluBackward(dy_, x_, bias_, form);
  at::set_num_threads(3);
  EXPECT_TRUE(at::equal(BiasGelu(x_, bias_, form), y));
  const auto [dx3, dbias3] = BiasGeluBackward(dy_, x_, bias_, form);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(dx3, dx));
  EXPECT_TRUE(at::equal(dbias3, dbias));
}

TEST_P(BiasGeluTest, AnyStrides) {
  const at::Tensor x = x_.repeat_interleave(2, -1).slice(-1, 0, {}, 2);
  const at::Tensor dy = dy_.repeat_interleave(2, -1).slice(-1, 0, {}, 2);
  const GeluForm form = GetParam().form;
  EXPECT_TRUE(at::equal(BiasGelu(x, bias_, form), BiasGelu(x_, bias_, form)));
  const auto strided = BiasGeluBackward(dy, x, bias_, form);
  const auto dense = BiasGeluBackward(dy_, x_, bias_, form);
  EXPECT_TRUE(at::equal(std::get<0>(strided), std::get<0>(dense)));
  EXPECT_TRUE(at::equal(std::get<1>(strided), std::get<1>(dense)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, BiasGeluTest,
                         testing::Values(Case{{0, 5}, GeluForm::kTanh},
                                         Case{{3, 0}, GeluForm::kTanh},
                                         Case{{1}, GeluForm::kTanh},
                                         Case{{1}, GeluForm::kNone},
                                         Case{{7, 13}, GeluForm::kTanh},
                                         Case{{7, 13}, GeluForm::kNone},
                                         Case{{3, 67, 512}, GeluForm::kTanh},
                                         Case{{3, 67, 512}, GeluForm::kNone},
                                         Case{{2, 20011}, GeluForm::kTanh}),
                         Name);

TEST(BiasGeluErrorsTest, WhatDoesNotFit) {
  const at::Tensor x = at::randn({2, 3});
  EXPECT_THROW(BiasGelu(x, at::randn({2}), GeluForm::kTanh), c10::Error);
  EXPECT_THROW(BiasGelu(x, at::randn({3}).to(at::kDouble), GeluForm::kTanh),
               c10::Error);
  EXPECT_THROW(BiasGelu(x.to(at::kDouble), at::randn({3}).to(at::kDouble),
                        GeluForm::kTanh),
               c10::Error);
  EXPECT_THROW(
      BiasGeluBackward(at::randn({3, 3}), x, at::randn({3}), GeluForm::kTanh),
      c10::Error);
}

TEST(BiasGeluErrorsTest, ANanStaysOne) {
  const at::Tensor x = at::full({1, 20}, NAN);
  for (GeluForm form : {GeluForm::kTanh, GeluForm::kNone}) {
    EXPECT_TRUE(BiasGelu(x, at::zeros({20}), form).isnan().all().item<bool>());
  }
}

}  // namespace
}  // namespace tandem::bias_gelu_test
