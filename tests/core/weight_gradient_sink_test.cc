#include "core/weight_gradient_sink.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "models/linear_function.h"

namespace tandem {
namespace {

struct Linear {
  at::Tensor weight = at::randn({3, 4}).requires_grad_();
  at::Tensor bias = at::randn({3}).requires_grad_();

  at::Tensor operator()(const at::Tensor& x) const {
    return LinearFunction(x, weight, bias, WeightLayout::kOutIn);
  }
};

TEST(WeightGradientSink, LeavesWeightsGradientsForLater) {
  const Linear linear;
  const at::Tensor x = at::randn({5, 4}).requires_grad_();
  linear(x).pow(2).sum().backward();
  const at::Tensor weight_grad = linear.weight.grad().clone();
  const at::Tensor bias_grad = linear.bias.grad().clone();
  const at::Tensor x_grad = x.grad().clone();
  for (const at::Tensor& each : {linear.weight, linear.bias, x}) {
    at::Tensor(each).mutable_grad().reset();
  }
  const auto sink = std::make_shared<WeightGradientSink>();
  at::Tensor y;
  {
    const WeightGradientSink::Scope scope(sink);
    EXPECT_EQ(WeightGradientSink::Current(), sink);
    y = linear(x);
  }
  EXPECT_EQ(WeightGradientSink::Current(), nullptr);
  y.pow(2).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), x_grad));
  EXPECT_FALSE(linear.weight.grad().defined());
  EXPECT_EQ(sink->size(), 2u);
  ASSERT_TRUE(sink->Flush().ok());
  EXPECT_EQ(sink->size(), 0u);
  EXPECT_TRUE(at::equal(linear.weight.grad(), weight_grad));
  EXPECT_TRUE(at::equal(linear.bias.grad(), bias_grad));
}

// What waits for a gradient hears of it when it is there, and not before.
TEST(WeightGradientSink, TellsWhoWaitsForTheGradient) {
  const Linear linear;
  int defined = 0;
  struct Count : torch::autograd::FunctionPostHook {
    explicit Count(int* count) : count(count) {}
    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& outputs,
        const torch::autograd::variable_list& inputs) override {
      *count += inputs[0].defined();
      return outputs;
    }
    int* count;
  };
  const auto accumulator =
      torch::autograd::impl::grad_accumulator(linear.weight);
  accumulator->add_post_hook(std::make_unique<Count>(&defined));
  const auto sink = std::make_shared<WeightGradientSink>();
  {
    const WeightGradientSink::Scope scope(sink);
    linear(at::randn({5, 4})).sum().backward();
  }
  EXPECT_EQ(defined, 0);
  ASSERT_TRUE(sink->Flush().ok());
  EXPECT_EQ(defined, 1);
}

TEST(WeightGradientSink, IsLeftAloneWhereBackwardIsDifferentiated) {
  const Linear linear;
  const at::Tensor x = at::randn({5, 4}).requires_grad_();
  const auto sink = std::make_shared<WeightGradientSink>();
  const WeightGradientSink::Scope scope(sink);
  const auto grads =
      torch::autograd::grad({linear(x).pow(2).sum()}, {linear.weight}, {},
                            /*retain_graph=*/true,
                            /*create_graph=*/true);
  EXPECT_EQ(sink->size(), 0u);
  EXPECT_TRUE(grads[0].requires_grad());
}

TEST(WeightGradientSink, AnErrorIsAStatus) {
  const Linear linear;
  WeightGradientSink sink;
  sink.Defer(linear.weight, [] { return at::randn({7}); });
  EXPECT_FALSE(sink.Flush().ok());
  EXPECT_EQ(sink.size(), 0u);
}

}  // namespace
}  // namespace tandem
