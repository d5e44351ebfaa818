// The functions under autocast, against doubles of the same rounded operands.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <memory>
#include <vector>

#include "core/model/weight_gradient_sink.h"
#include "core/precision/autocast.h"
#include "models/functions/activation_functions.h"
#include "models/functions/conv2d_function.h"
#include "models/functions/embedding_function.h"
#include "models/functions/linear_function.h"
#include "models/functions/matrix_product.h"
#include "models/functions/norm_function.h"
#include "tests/models/rounding.h"

namespace tandem::mixed_precision_test {
namespace {

using torch::autograd::grad;

constexpr c10::DeviceType kCpu = c10::DeviceType::CPU;

at::Tensor Rounded(const at::Tensor& x) {
  return x.detach().to(at::kBFloat16).to(at::kDouble);
}

at::Tensor Leaf(at::IntArrayRef sizes) {
  return at::randn(sizes).set_requires_grad(true);
}

// A result in bf16 was rounded once, and has no errors of its operands, for the
// operands of `expected` were rounded before.
::testing::AssertionResult IsNear(const at::Tensor& actual,
                                  const at::Tensor& expected, int roundings) {
  const double tolerance =
      RoundingTolerance(actual.scalar_type(), roundings,
                        expected.detach().abs().max().item<double>());
  const double difference =
      (actual.detach().to(at::kDouble) - expected.detach())
          .abs()
          .max()
          .item<double>();
  if (actual.sizes() == expected.sizes() && difference <= tolerance) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << actual.sizes() << " and " << expected.sizes() << " differ by "
         << difference << ", more than " << tolerance;
}

struct LinearCase {
  int64_t rows, in, out;
  bool bias;
  WeightLayout layout;
};

class LinearUnderAutocastTest : public ::testing::TestWithParam<LinearCase> {
 protected:
  LinearUnderAutocastTest()
      : x_(Leaf({c_.rows, c_.in})),
        weight_(c_.layout == WeightLayout::kOutIn ? Leaf({c_.out, c_.in})
                                                  : Leaf({c_.in, c_.out})),
        bias_(c_.bias ? Leaf({c_.out}) : at::Tensor()) {}

  at::Tensor Forward() const {
    const AutocastGuard guard(kCpu, at::kBFloat16);
    return LinearFunction(x_, weight_, bias_, c_.layout);
  }
  // [in, out]
  at::Tensor Factor() const {
    const at::Tensor weight = Rounded(weight_);
    return c_.layout == WeightLayout::kOutIn ? weight.t() : weight;
  }

  const LinearCase c_ = GetParam();
  const at::Tensor x_, weight_, bias_;
};

TEST_P(LinearUnderAutocastTest, MultipliesInBf16) {
  const at::Tensor y = Forward();
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  at::Tensor expected = at::mm(Rounded(x_), Factor());
  if (c_.bias) expected = expected + Rounded(bias_);
  EXPECT_TRUE(IsNear(y, expected, 2));
}

TEST_P(LinearUnderAutocastTest, GivesParametersGradientsOfTheirDtype) {
  const at::Tensor y = Forward();
  const at::Tensor dy = at::randn(y.sizes()).to(at::kBFloat16);
  torch::autograd::backward({y}, {dy});
  const at::Tensor wide = dy.to(at::kDouble);
  ASSERT_EQ(x_.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(
      IsNear(x_.grad().to(at::kBFloat16), at::mm(wide, Factor().t()), 2));
  at::Tensor expected = at::mm(Rounded(x_).t(), wide);
  if (c_.layout == WeightLayout::kOutIn) expected = expected.t();
  ASSERT_EQ(weight_.grad().scalar_type(), at::kFloat);
  if (HasWideProduct()) {  // not rounded to bf16
    EXPECT_TRUE(
        IsNear(weight_.grad(), expected, static_cast<int>(c_.rows) + 1));
  } else {
    EXPECT_TRUE(IsNear(weight_.grad().to(at::kBFloat16), expected, 2));
  }
  if (!c_.bias) return;
  ASSERT_EQ(bias_.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(IsNear(bias_.grad(), wide.sum(0), static_cast<int>(c_.rows) + 1));
}

TEST_P(LinearUnderAutocastTest, LeavesTheSameGradientsForLater) {
  const at::Tensor dy = at::randn({c_.rows, c_.out}).to(at::kBFloat16);
  torch::autograd::backward({Forward()}, {dy});
  const at::Tensor at_once = weight_.grad().clone();
  weight_.mutable_grad() = at::Tensor();
  const auto sink = std::make_shared<WeightGradientSink>();
  {
    const WeightGradientSink::Scope scope(sink);
    torch::autograd::backward({Forward()}, {dy});
  }
  EXPECT_FALSE(weight_.grad().defined());
  ASSERT_TRUE(sink->Flush().ok());
  EXPECT_TRUE(weight_.grad().equal(at_once));
}

TEST_P(LinearUnderAutocastTest, IsNotDifferentiatedAfterAnUpdate) {
  const at::Tensor y = Forward();
  {
    const at::NoGradGuard no_grad;
    weight_.add_(1);
  }
  EXPECT_THROW(y.sum().backward(), c10::Error);
}

TEST_P(LinearUnderAutocastTest, IsDifferentiableTwice) {
  const at::Tensor y = Forward();
  const at::Tensor dx = grad({y.to(at::kFloat).square().sum()}, {x_}, {},
                             /*retain_graph=*/true, /*create_graph=*/true)[0];
  const at::Tensor second = grad({dx.square().sum()}, {x_})[0];
  EXPECT_EQ(second.scalar_type(), at::kFloat);
  EXPECT_TRUE(second.isfinite().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LinearUnderAutocastTest,
    ::testing::Values(LinearCase{1, 1, 1, true, WeightLayout::kOutIn},
                      LinearCase{7, 5, 3, true, WeightLayout::kOutIn},
                      LinearCase{7, 5, 3, false, WeightLayout::kInOut},
                      LinearCase{33, 1, 17, true, WeightLayout::kInOut},
                      LinearCase{131, 129, 127, true, WeightLayout::kOutIn},
                      LinearCase{131, 129, 127, true, WeightLayout::kInOut}));

TEST(MixedPrecisionTest, TakesNoSamples) {
  const at::Tensor x = Leaf({0, 5});
  const at::Tensor weight = Leaf({3, 5});
  const at::Tensor bias = Leaf({3});
  const AutocastGuard guard(kCpu, at::kBFloat16);
  const at::Tensor y = LinearFunction(x, weight, bias, WeightLayout::kOutIn);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 3}));
  y.sum().backward();
  EXPECT_TRUE(weight.grad().eq(0).all().item<bool>());
}

TEST(MixedPrecisionTest, DoublesStayDoubles) {
  const at::Tensor x = at::randn({4, 3}, at::kDouble);
  const at::Tensor weight = at::randn({2, 3}, at::kDouble);
  const AutocastGuard guard(kCpu, at::kBFloat16);
  const at::Tensor y = LinearFunction(x, weight, {}, WeightLayout::kOutIn);
  EXPECT_TRUE(y.equal(at::linear(x, weight)));
}

// Rounded to bf16 where the processor has no such product; not more than 66
// terms.
::testing::AssertionResult IsWideOrRoundedOnce(const at::Tensor& product,
                                               const at::Tensor& expected) {
  return HasWideProduct() ? IsNear(product, expected, 66)
                          : IsNear(product.to(at::kBFloat16), expected, 2);
}

TEST(MixedPrecisionTest, AProductIsWideOrRoundedOnce) {
  for (const int64_t n : {1, 7, 130}) {
    const at::Tensor a = at::randn({n, 65}).to(at::kBFloat16);
    const at::Tensor b = at::randn({65, n + 1}).to(at::kBFloat16);
    for (const at::Tensor& left : {a, a.t().contiguous().t()}) {
      const at::Tensor product = MatrixProductIn(at::kFloat, left, b);
      ASSERT_EQ(product.scalar_type(), at::kFloat);
      const at::Tensor expected =
          at::mm(left.to(at::kDouble), b.to(at::kDouble));
      EXPECT_TRUE(IsWideOrRoundedOnce(product, expected));
    }
  }
}

TEST(MixedPrecisionTest, AWideProductTakesExpandedAndEmptyOperands) {
  const at::Tensor ones = at::ones({}, at::kBFloat16).expand({5, 4});
  const at::Tensor b = at::randn({4, 3}).to(at::kBFloat16);
  EXPECT_TRUE(
      IsWideOrRoundedOnce(MatrixProductIn(at::kFloat, ones, b),
                          at::mm(ones.to(at::kDouble), b.to(at::kDouble))));
  const at::Tensor none = at::ones({5, 0}, at::kBFloat16);
  EXPECT_TRUE(
      MatrixProductIn(at::kFloat, none, none.t()).equal(at::zeros({5, 5})));
  EXPECT_EQ(MatrixProductIn(at::kFloat, none.t(), ones).sizes(),
            at::IntArrayRef({0, 4}));
}

TEST(MixedPrecisionTest, ConvolvesInBf16) {
  for (const bool splits : {false, true}) {
    const at::Tensor x = Leaf({3, 4, 9, 7});
    const at::Tensor weight = Leaf({5, 4, 3, 3});
    const at::Tensor bias = Leaf({5});
    const auto sink = splits ? std::make_shared<WeightGradientSink>() : nullptr;
    at::Tensor y;
    {
      const WeightGradientSink::Scope scope(sink);
      const AutocastGuard guard(kCpu, at::kBFloat16);
      y = Conv2dFunction(x, weight, bias, /*stride=*/2, /*padding=*/1);
    }
    const at::Tensor doubles[] = {Rounded(x).set_requires_grad(true),
                                  Rounded(weight).set_requires_grad(true),
                                  Rounded(bias).set_requires_grad(true)};
    const at::Tensor expected = at::conv2d(doubles[0], doubles[1], doubles[2],
                                           /*stride=*/2, /*padding=*/1);
    ASSERT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(IsNear(y, expected, 2));
    const at::Tensor dy = at::randn(y.sizes()).to(at::kBFloat16);
    torch::autograd::backward({y}, {dy});
    if (splits) {
      ASSERT_TRUE(sink->Flush().ok());
    }
    torch::autograd::backward({expected}, {dy.to(at::kDouble)});
    const at::Tensor mine[] = {x, weight, bias};
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(mine[i].grad().scalar_type(), at::kFloat);
      EXPECT_TRUE(
          IsNear(mine[i].grad().to(at::kBFloat16), doubles[i].grad(), 3))
          << i;
    }
  }
}

// Where a part of the kernel falls on padding alone, whatever the memory held
// before came out of oneDNN's AMX kernels.
TEST(MixedPrecisionTest, ATapThatMeetsPaddingAloneHasNoGradient) {
  const at::Tensor x = Leaf({2, 8, 1, 1});
  const at::Tensor weight = Leaf({16, 8, 3, 3});
  const at::Tensor middle = at::zeros({3, 3});
  middle[1][1] = 1;
  for (int i = 0; i < 20; ++i) {
    // What is freed here is likely to be what the gradient is written to.
    at::full(weight.sizes(), NAN, at::kBFloat16);
    const AutocastGuard guard(kCpu, at::kBFloat16);
    const at::Tensor y =
        Conv2dFunction(x, weight, /*bias=*/{}, /*stride=*/2, /*padding=*/1);
    const auto gradients =
        grad({y}, {x, weight}, {at::ones(y.sizes(), at::kBFloat16)});
    ASSERT_EQ(gradients[0].scalar_type(), at::kFloat);
    const at::Tensor dw = gradients[1];
    ASSERT_EQ((dw * (1 - middle)).abs().max().item<double>(), 0);
    const at::Tensor expected = Rounded(x).sum(0).flatten();
    ASSERT_TRUE(
        IsNear(dw[3].select(2, 1).select(1, 1).to(at::kBFloat16), expected, 3));
  }
}

TEST(MixedPrecisionTest, NormalisesInFloat) {
  const at::Tensor x = at::randn({6, 33}).to(at::kBFloat16);
  const at::Tensor leaf = x.clone().set_requires_grad(true);
  const at::Tensor weight = Leaf({33});
  const at::Tensor bias = Leaf({33});
  const AutocastGuard guard(kCpu, at::kBFloat16);
  const at::Tensor y = LayerNormFunction(leaf, weight, bias, 1e-5);
  ASSERT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(IsNear(
      y,
      at::layer_norm(x.to(at::kDouble), {33}, weight.detach().to(at::kDouble),
                     bias.detach().to(at::kDouble), 1e-5),
      2));
  y.sum().backward();
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(leaf.grad().scalar_type(), at::kBFloat16);
}

TEST(MixedPrecisionTest, GeluTakesAFloatBias) {
  const at::Tensor x = at::randn({6, 33}).to(at::kBFloat16);
  const at::Tensor leaf = x.clone().set_requires_grad(true);
  const at::Tensor bias = Leaf({33});
  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kNone}) {
    bias.mutable_grad() = at::Tensor();
    const at::Tensor y = BiasGeluFunction(leaf, bias, form);
    ASSERT_EQ(y.scalar_type(), at::kBFloat16);
    const at::Tensor sum =
        (x.to(at::kDouble) + Rounded(bias)).set_requires_grad(true);
    const at::Tensor expected =
        at::gelu(sum, form == GeluForm::kTanh ? "tanh" : "none");
    EXPECT_TRUE(IsNear(y, expected, 2));
    y.sum().backward();
    expected.sum().backward();
    ASSERT_EQ(bias.grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(IsNear(bias.grad().to(at::kBFloat16), sum.grad().sum(0), 6));
  }
}

TEST(MixedPrecisionTest, EmbeddingsAreRoundedWhenTheyAreLookedUp) {
  const at::Tensor weight = Leaf({11, 8});
  const at::Tensor tokens = at::randint(11, {4, 5}, at::kLong);
  const AutocastGuard guard(kCpu, at::kBFloat16);
  const at::Tensor y = EmbeddingFunction(tokens, weight);
  EXPECT_TRUE(
      y.equal(at::embedding(weight.detach(), tokens).to(at::kBFloat16)));
  y.sum().backward();
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(weight.grad().sum().item<float>(), 4 * 5 * 8);
}

}  // namespace
}  // namespace tandem::mixed_precision_test
