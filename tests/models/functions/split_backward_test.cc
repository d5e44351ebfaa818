// Every layer with a backward in two parts, against LibTorch's own function:
// the same bits, in one part and in two.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/weight_gradient_sink.h"
#include "models/functions/activation_functions.h"
#include "models/functions/conv2d_function.h"
#include "models/functions/convolution_function.h"
#include "models/functions/embedding_function.h"
#include "models/functions/norm_function.h"
#include "tests/models/rounding.h"

namespace tandem::split_backward_test {
namespace {

using Function = std::function<at::Tensor(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias)>;

struct Case {
  std::string name;
  Function expected;  // LibTorch's
  Function actual;
  at::Tensor x, weight, bias;  // detached; bias may be undefined
  bool is_twice_differentiable = true;
  // Between the two: 0 if they have the same bits.
  int roundings = 0;
};

Case ConvCase(const std::string& name, std::vector<int64_t> x,
              std::vector<int64_t> weight, int64_t stride, bool bias) {
  const int64_t padding = weight[2] / 2;
  return {name,
          [=](const auto& x, const auto& w, const auto& b) {
            return at::conv2d(x, w, b, stride, padding);
          },
          [=](const auto& x, const auto& w, const auto& b) {
            return Conv2dFunction(x, w, b, stride, padding);
          },
          at::randn(x),
          at::randn(weight),
          bias ? at::randn({weight[0]}) : at::Tensor()};
}

Case BatchNormCase(const std::string& name, const at::Tensor& x,
                   bool training) {
  const auto arguments = [training](const auto& w, const auto& b) {
    BatchNormArguments arguments;
    arguments.weight = w;
    arguments.bias = b;
    arguments.running_mean = at::ones({3});
    arguments.running_var = at::ones({3}) * 2;
    arguments.training = training;
    return arguments;
  };
  return {name,
          [=](const auto& x, const auto& w, const auto& b) {
            const BatchNormArguments a = arguments(w, b);
            return at::batch_norm(x, w, b, a.running_mean, a.running_var,
                                  training, a.momentum, a.eps, false);
          },
          [=](const auto& x, const auto& w, const auto& b) {
            return BatchNormFunction(x, arguments(w, b));
          },
          x,
          at::randn({3}),
          at::randn({3})};
}

std::vector<Case> Cases() {
  const at::Tensor images = at::randn({5, 3, 7, 2});
  return {
      ConvCase("conv", {2, 3, 7, 5}, {4, 3, 3, 3}, 1, true),
      ConvCase("conv, stride 2, no bias", {3, 8, 6, 6}, {16, 8, 3, 3}, 2,
               false),
      ConvCase("conv 1x1", {2, 8, 5, 5}, {16, 8, 1, 1}, 2, false),
      {"conv, channels last",
       [](const auto& x, const auto& w, const auto& b) {
         return at::conv2d(x, w, b, 2, 3);
       },
       [](const auto& x, const auto& w, const auto& b) {
         return Conv2dFunction(x, w, b, 2, 3);
       },
       at::randn({2, 3, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast),
       at::randn({8, 3, 7, 7}),
       {}},
      // Without a sink ConvolutionFunction is an oracle too:
      // convolution_function_test compares it with LibTorch's. A single sample
      // goes another way than many.
      {"conv by products",
       [](const auto& x, const auto& w, const auto&) {
         return ConvolutionFunction(x, w, 1, 1);
       },
       [](const auto& x, const auto& w, const auto&) {
         return ConvolutionFunction(x, w, 1, 1);
       },
       at::randn({32, 48, 2, 2}),
       at::randn({64, 48, 3, 3}),
       {},
       /*is_twice_differentiable=*/false},
      {"embedding",
       [](const auto& x, const auto& w, const auto&) {
         return at::embedding(w, x);
       },
       [](const auto& x, const auto& w, const auto&) {
         return EmbeddingFunction(x, w);
       },
       at::arange(21, at::kLong).view({3, 7}) * 5 % 8,
       at::randn({8, 6}),
       {}},
      {"layer norm",
       [](const auto& x, const auto& w, const auto& b) {
         return at::layer_norm(x, {11}, w, b, 1e-5);
       },
       [](const auto& x, const auto& w, const auto& b) {
         return LayerNormFunction(x, w, b, 1e-5);
       },
       at::randn({2, 3, 11}), at::randn({11}), at::randn({11}),
       /*is_twice_differentiable=*/true, /*roundings=*/64},
      {"bias gelu",
       [](const auto& x, const auto& w, const auto&) {
         return at::gelu(x + w, "tanh");
       },
       [](const auto& x, const auto& w, const auto&) {
         return BiasGeluFunction(x, w, GeluForm::kTanh);
       },
       at::randn({2, 3, 11}),
       at::randn({11}),
       {},
       /*is_twice_differentiable=*/true,
       /*roundings=*/64},
      BatchNormCase("batch norm", images, true),
      BatchNormCase("batch norm, channels last",
                    images.contiguous(at::MemoryFormat::ChannelsLast), true),
      BatchNormCase("batch norm, evaluation", images, false),
  };
}

// The tensors of a case as leaves.
struct Leaves {
  explicit Leaves(const Case& each, bool x_takes_gradient = true) {
    x = each.x.clone();
    if (x_takes_gradient && x.is_floating_point()) x.requires_grad_();
    weight = each.weight.clone().requires_grad_();
    if (each.bias.defined()) bias = each.bias.clone().requires_grad_();
  }
  at::Tensor x, weight, bias;
};

void ExpectSame(const at::Tensor& actual, const at::Tensor& expected,
                int roundings) {
  ASSERT_EQ(actual.defined(), expected.defined());
  if (!expected.defined()) return;
  EXPECT_TRUE(IsWithinRoundings(actual, expected, roundings));
}

void ExpectSameGradients(const Leaves& actual, const Leaves& expected,
                         int roundings) {
  ExpectSame(actual.x.grad(), expected.x.grad(), roundings);
  ExpectSame(actual.weight.grad(), expected.weight.grad(), roundings);
  if (expected.bias.defined()) {
    ExpectSame(actual.bias.grad(), expected.bias.grad(), roundings);
  }
}

// What is squared, so that the gradient of the output is not constant.
void Backward(const at::Tensor& y) { y.square().sum().backward(); }

TEST(SplitBackward, HasLibTorchsBitsWithAndWithoutASink) {
  for (const Case& each : Cases()) {
    for (const bool x_takes_gradient : {true, false}) {
      SCOPED_TRACE(each.name + (x_takes_gradient ? "" : ", of the weights"));
      const Leaves expected(each, x_takes_gradient);
      const Leaves joint(each, x_takes_gradient);
      const Leaves split(each, x_takes_gradient);
      const at::Tensor y =
          each.expected(expected.x, expected.weight, expected.bias);
      Backward(y);
      const at::Tensor of_joint =
          each.actual(joint.x, joint.weight, joint.bias);
      ExpectSame(of_joint, y, each.roundings);
      Backward(of_joint);
      ExpectSameGradients(joint, expected, each.roundings);

      const auto sink = std::make_shared<WeightGradientSink>();
      at::Tensor of_split;
      {
        const WeightGradientSink::Scope scope(sink);
        of_split = each.actual(split.x, split.weight, split.bias);
      }
      EXPECT_TRUE(of_split.equal(of_joint));
      Backward(of_split);
      ExpectSame(split.x.grad(), joint.x.grad(), 0);
      EXPECT_FALSE(split.weight.grad().defined());
      EXPECT_EQ(sink->size(), each.bias.defined() ? 2u : 1u);
      ASSERT_TRUE(sink->Flush().ok());
      ExpectSameGradients(split, joint, 0);
    }
  }
}

// What is left holds the graph, whose nodes must not hold it in turn.
TEST(SplitBackward, WhatIsNeverFlushedGoesWithTheSink) {
  for (const Case& each : Cases()) {
    if (!each.x.is_floating_point()) continue;
    SCOPED_TRACE(each.name);
    const Leaves leaves(each);
    const at::Tensor bias = at::zeros({each.x.size(-1)}).requires_grad_();
    std::weak_ptr<WeightGradientSink> dropped;
    {
      const auto sink = std::make_shared<WeightGradientSink>();
      const WeightGradientSink::Scope scope(sink);
      const at::Tensor x = BiasGeluFunction(leaves.x, bias, GeluForm::kTanh);
      Backward(each.actual(x, leaves.weight, leaves.bias));
      EXPECT_GE(sink->size(), 2u);
      dropped = sink;
    }
    EXPECT_TRUE(dropped.expired());
  }
}

TEST(SplitBackward, LeavesNothingWhereTheWeightIsNoLeaf) {
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.name);
    const Leaves expected(each);
    const Leaves actual(each);
    Backward(each.expected(expected.x, expected.weight * 2, expected.bias));
    const auto sink = std::make_shared<WeightGradientSink>();
    const WeightGradientSink::Scope scope(sink);
    Backward(each.actual(actual.x, actual.weight * 2, actual.bias));
    EXPECT_EQ(sink->size(), 0u);
    ExpectSameGradients(actual, expected, each.roundings);
  }
}

TEST(SplitBackward, AFrozenWeightGetsNothing) {
  for (const Case& each : Cases()) {
    if (!each.bias.defined()) continue;
    SCOPED_TRACE(each.name);
    Leaves expected(each);
    Leaves actual(each);
    expected.weight.requires_grad_(false);
    actual.weight.requires_grad_(false);
    Backward(each.expected(expected.x, expected.weight, expected.bias));
    const auto sink = std::make_shared<WeightGradientSink>();
    {
      const WeightGradientSink::Scope scope(sink);
      Backward(each.actual(actual.x, actual.weight, actual.bias));
    }
    EXPECT_EQ(sink->size(), 1u);
    ASSERT_TRUE(sink->Flush().ok());
    ExpectSameGradients(actual, expected, each.roundings);
  }
}

TEST(SplitBackward, OfFp16ANormsWeightMayBeInFp32) {
  const Case norm = {"",
                     [](const auto& x, const auto& w, const auto& b) {
                       return at::layer_norm(x, {11}, w, b, 1e-5);
                     },
                     [](const auto& x, const auto& w, const auto& b) {
                       return LayerNormFunction(x, w, b, 1e-5);
                     },
                     at::randn({2, 3, 11}).to(at::kHalf),
                     at::randn({11}),
                     at::randn({11})};
  const Leaves expected(norm);
  Backward(norm.expected(expected.x, expected.weight, expected.bias));
  for (const bool is_frozen : {false, true}) {
    const Leaves actual(norm);
    if (is_frozen) actual.weight.set_requires_grad(false);
    const auto sink = std::make_shared<WeightGradientSink>();
    {
      const WeightGradientSink::Scope scope(sink);
      Backward(norm.actual(actual.x, actual.weight, actual.bias));
    }
    ExpectSame(actual.x.grad(), expected.x.grad(), 0);
    EXPECT_FALSE(actual.bias.grad().defined());
    ASSERT_TRUE(sink->Flush().ok());
    ExpectSame(actual.bias.grad(), expected.bias.grad(), 0);
    EXPECT_EQ(actual.weight.grad().defined(), !is_frozen);
    if (!is_frozen) {
      ExpectSame(actual.weight.grad(), expected.weight.grad(), 0);
    }
  }
}

// Operands concatenated along the samples; each case cut in 1 and the rest.
TEST(SplitBackward, OfSeveralMicrobatchesAtOnceIsTheirSum) {
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.name);
    const Leaves expected(each);
    const Leaves actual(each);
    std::vector<std::shared_ptr<WeightGradientSink>> sinks;
    const int64_t rest = each.x.size(0) - 1;
    for (const at::Tensor& part :
         {each.x.narrow(0, 0, 1), each.x.narrow(0, 1, rest)}) {
      Backward(each.expected(part, expected.weight, expected.bias));
      sinks.push_back(std::make_shared<WeightGradientSink>());
      const WeightGradientSink::Scope scope(sinks.back());
      Backward(each.actual(part, actual.weight, actual.bias));
    }
    ASSERT_TRUE(WeightGradientSink::FlushTogether(sinks).ok());
    EXPECT_LE(
        (actual.weight.grad() - expected.weight.grad()).norm().item<double>(),
        1e-6 * expected.weight.grad().norm().item<double>());
    if (!each.bias.defined()) continue;
    EXPECT_LE((actual.bias.grad() - expected.bias.grad()).norm().item<double>(),
              1e-6 * expected.bias.grad().norm().item<double>());
  }
}

TEST(SplitBackward, CanBeDifferentiatedTwice) {
  for (const Case& each : Cases()) {
    if (!each.x.is_floating_point() || !each.is_twice_differentiable) continue;
    SCOPED_TRACE(each.name);
    const Leaves leaves(each);
    const auto second = [&leaves](const Function& function) {
      const at::Tensor y = function(leaves.x, leaves.weight, leaves.bias);
      const at::Tensor dx = torch::autograd::grad(
          {y.square().sum()}, {leaves.x}, {}, /*retain_graph=*/true,
          /*create_graph=*/true)[0];
      return torch::autograd::grad({dx.square().sum()}, {leaves.weight}, {},
                                   /*retain_graph=*/true,
                                   /*create_graph=*/true)[0];
    };
    const at::Tensor expected = second(each.expected);
    const auto sink = std::make_shared<WeightGradientSink>();
    const WeightGradientSink::Scope scope(sink);
    ExpectSame(second(each.actual), expected, each.roundings);
    EXPECT_EQ(sink->size(), 0u);
  }
}

TEST(SplitBackward, ASecondBackwardWithoutItsGraphIsAnError) {
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.name);
    const Leaves leaves(each);
    const WeightGradientSink::Scope scope(
        std::make_shared<WeightGradientSink>());
    const at::Tensor y =
        each.actual(leaves.x, leaves.weight, leaves.bias).sum();
    y.backward();
    EXPECT_THROW(y.backward(), c10::Error);
  }
}

TEST(SplitBackward, WithoutGradientsThereIsNoNode) {
  const WeightGradientSink::Scope scope(std::make_shared<WeightGradientSink>());
  const at::NoGradGuard no_grad;
  for (const Case& each : Cases()) {
    const Leaves leaves(each);
    EXPECT_FALSE(
        each.actual(leaves.x, leaves.weight, leaves.bias).requires_grad());
  }
}

}  // namespace
}  // namespace tandem::split_backward_test
