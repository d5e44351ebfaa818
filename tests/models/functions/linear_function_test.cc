#include "models/functions/linear_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <vector>

#include "core/model/weight_gradient_sink.h"
#include "models/functions/matrix_product.h"

namespace tandem::linear_function_test {
namespace {

using torch::autograd::grad;

bool Close(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a, b, 1e-4, 1e-4);
}

// A product on each side of the size from which oneDNN does it.
struct Sizes {
  int64_t m, k, n;
};
const Sizes kSmall = {5, 3, 7};
const Sizes kLarge = {131, 129, 127};

TEST(MatrixProduct, TheLargeOnesAreLargeEnoughForOneDnn) {
  EXPECT_LT(kSmall.m * kSmall.k * kSmall.n, kLeastOneDnnProduct);
  EXPECT_GE(kLarge.m * kLarge.k * kLarge.n, kLeastOneDnnProduct);
}

TEST(MatrixProduct, TakesMatricesAndTheirTransposes) {
  for (const Sizes& s : {kSmall, kLarge}) {
    const at::Tensor a = at::randn({s.m, s.k});
    const at::Tensor b = at::randn({s.k, s.n});
    const at::Tensor bias = at::randn({s.n});
    const at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    for (const at::Tensor& left : {a, a.t().contiguous().t()}) {
      for (const at::Tensor& right : {b, b.t().contiguous().t()}) {
        EXPECT_TRUE(
            Close(MatrixProduct(left, right).to(at::kDouble), expected));
        EXPECT_TRUE(Close(MatrixProduct(left, right, bias).to(at::kDouble),
                          expected + bias));
      }
    }
  }
}

TEST(MatrixProduct, TakesSlicesOfLargerMatrices) {
  const at::Tensor a = at::randn({140, 300}).slice(0, 3, 134).slice(1, 5, 134);
  const at::Tensor b = at::randn({129, 400}).slice(1, 7, 134);
  ASSERT_GE(a.size(0) * a.size(1) * b.size(1), kLeastOneDnnProduct);
  EXPECT_TRUE(Close(MatrixProduct(a, b), at::mm(a, b)));
}

TEST(MatrixProduct, OfDoublesHasMmsBits) {
  const at::Tensor a = at::randn({131, 129}, at::kDouble);
  const at::Tensor b = at::randn({129, 127}, at::kDouble);
  EXPECT_TRUE(MatrixProduct(a, b).equal(at::mm(a, b)));
}

TEST(MatrixProduct, HasTheSameBitsEachTime) {
  const at::Tensor a = at::randn({200, 300});
  const at::Tensor b = at::randn({300, 100});
  EXPECT_TRUE(MatrixProduct(a, b).equal(MatrixProduct(a, b)));
}

TEST(MatrixProduct, RefusesWhatDoesNotFit) {
  EXPECT_THROW(MatrixProduct(at::randn({200, 300}), at::randn({301, 100})),
               c10::Error);
}

TEST(MatrixProduct, IsDifferentiable) {
  for (const Sizes& s : {kSmall, kLarge}) {
    const at::Tensor a = at::randn({s.m, s.k}).requires_grad_();
    const at::Tensor b = at::randn({s.k, s.n});
    MatrixProduct(a, b).sum().backward();
    EXPECT_TRUE(Close(a.grad(), b.sum(1).expand({s.m, s.k})));
  }
}

struct Problem {
  at::Tensor x, weight, bias, dy;

  at::Tensor Expected() const { return at::linear(x, weight, bias); }
  at::Tensor Actual(WeightLayout layout) const {
    const bool as_stored = layout == WeightLayout::kOutIn;
    return LinearFunction(x, as_stored ? weight : weight.t(), bias, layout);
  }
};

Problem MakeProblem(std::vector<int64_t> batch, const Sizes& s, bool bias) {
  Problem problem;
  std::vector<int64_t> out = batch;
  batch.push_back(s.k);
  out.push_back(s.n);
  problem.x = at::randn(batch).requires_grad_();
  problem.weight = at::randn({s.n, s.k}).requires_grad_();
  if (bias) problem.bias = at::randn({s.n}).requires_grad_();
  problem.dy = at::randn(out);
  return problem;
}

std::vector<at::Tensor> Gradients(const Problem& problem, const at::Tensor& y) {
  std::vector<at::Tensor> inputs = {problem.x, problem.weight};
  if (problem.bias.defined()) inputs.push_back(problem.bias);
  return grad({y}, inputs, {problem.dy});
}

TEST(LinearFunction, ComputesWhatLinearComputes) {
  for (const Sizes& s : {kSmall, kLarge}) {
    for (const auto& batch :
         std::vector<std::vector<int64_t>>{{s.m}, {2, s.m}, {1, 3, s.m}, {0}}) {
      for (bool bias : {true, false}) {
        const Problem problem = MakeProblem(batch, s, bias);
        const auto expected = Gradients(problem, problem.Expected());
        for (WeightLayout layout :
             {WeightLayout::kOutIn, WeightLayout::kInOut}) {
          const at::Tensor y = problem.Actual(layout);
          EXPECT_TRUE(Close(y, problem.Expected()));
          const auto actual = Gradients(problem, y);
          for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_TRUE(Close(actual[i], expected[i])) << i;
          }
        }
      }
    }
  }
}

TEST(LinearFunction, SmallOnesHaveTheBitsOfLinear) {
  const Problem problem = MakeProblem({5}, kSmall, /*bias=*/true);
  const at::Tensor y = problem.Actual(WeightLayout::kOutIn);
  EXPECT_TRUE(y.equal(problem.Expected()));
  const auto expected = Gradients(problem, problem.Expected());
  const auto actual = Gradients(problem, y);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(actual[i].equal(expected[i])) << i;
  }
}

TEST(LinearFunction, GradientsHaveTheParametersStrides) {
  const Problem problem = MakeProblem({131}, kLarge, /*bias=*/true);
  problem.Actual(WeightLayout::kOutIn).sum().backward();
  EXPECT_EQ(problem.weight.grad().strides(), problem.weight.strides());
}

TEST(LinearFunction, BackwardComputesOnlyWhatIsWanted) {
  Problem problem = MakeProblem({5}, kSmall, /*bias=*/true);
  problem.x = problem.x.detach();
  problem.Actual(WeightLayout::kOutIn).sum().backward();
  EXPECT_FALSE(problem.x.grad().defined());
  EXPECT_TRUE(problem.weight.grad().defined());
  at::NoGradGuard no_grad;
  EXPECT_FALSE(problem.Actual(WeightLayout::kOutIn).requires_grad());
}

TEST(LinearFunction, CanBeDifferentiatedTwice) {
  for (const Sizes& s : {kSmall, kLarge}) {
    const Problem problem = MakeProblem({s.m}, s, /*bias=*/true);
    const auto second = [&problem](const at::Tensor& y) {
      const at::Tensor dx =
          grad({y.square().sum()}, {problem.x}, {},
               /*retain_graph=*/true, /*create_graph=*/true)[0];
      return grad({dx.sum()}, {problem.weight})[0];
    };
    const at::Tensor expected = second(problem.Expected());
    EXPECT_TRUE(at::allclose(second(problem.Actual(WeightLayout::kOutIn)),
                             expected, 1e-3, 1e-2));
  }
}

TEST(LinearFunction, ASecondBackwardWithoutItsGraphIsAnError) {
  const Problem problem = MakeProblem({5}, kSmall, /*bias=*/true);
  const at::Tensor loss = problem.Actual(WeightLayout::kOutIn).sum();
  loss.backward();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(LinearFunction, AWeightChangedBeforeBackwardIsAnError) {
  const Problem problem = MakeProblem({5}, kSmall, /*bias=*/true);
  const at::Tensor loss = problem.Actual(WeightLayout::kOutIn).sum();
  {
    at::NoGradGuard no_grad;
    at::Tensor weight = problem.weight;
    weight.add_(1);
  }
  EXPECT_THROW(loss.backward(), c10::Error);
}

class AddBias : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor x_ = at::randn({3, 5, 7}).to(GetParam()).requires_grad_();
  at::Tensor bias_ = at::randn({7}).requires_grad_();
  at::Tensor dy_ = at::randn({3, 5, 7}).to(GetParam());
};

TEST_P(AddBias, AddsItAndSumsItsGradientInItsDtype) {
  const at::Tensor y = AddBiasFunction(x_, bias_);
  EXPECT_TRUE(y.equal(x_ + bias_.to(GetParam())));
  y.backward(dy_);
  EXPECT_TRUE(x_.grad().equal(dy_));
  EXPECT_TRUE(bias_.grad().equal(dy_.flatten(0, 1).sum(0, false, at::kFloat)));
}

TEST_P(AddBias, LeavesItsGradientInASink) {
  const auto sink = std::make_shared<WeightGradientSink>();
  at::Tensor y;
  {
    const WeightGradientSink::Scope scope(sink);
    y = AddBiasFunction(x_, bias_);
  }
  y.backward(dy_);
  EXPECT_TRUE(x_.grad().equal(dy_));
  EXPECT_FALSE(bias_.grad().defined());
  EXPECT_TRUE(sink->Flush().ok());
  EXPECT_TRUE(bias_.grad().equal(dy_.flatten(0, 1).sum(0, false, at::kFloat)));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AddBias,
                         testing::Values(at::kFloat, at::kBFloat16));

TEST(AddBiasTest, IsDifferentiableTwice) {
  const at::Tensor x = at::randn({5, 7}, at::kDouble).requires_grad_();
  const at::Tensor bias = at::randn({7}, at::kDouble).requires_grad_();
  const auto second = [&](const at::Tensor& y) {
    const auto first = grad({y.pow(3).sum()}, {bias}, {}, /*retain_graph=*/true,
                            /*create_graph=*/true);
    return grad({first[0].square().sum()}, {x})[0];
  };
  EXPECT_TRUE(Close(second(AddBiasFunction(x, bias)), second(x + bias)));
}

TEST(AddBiasTest, NoneIsNone) {
  const at::Tensor x = at::randn({5, 7});
  EXPECT_TRUE(AddBiasFunction(x, {}).is_same(x));
}

}  // namespace
}  // namespace tandem::linear_function_test
