#include "core/model/weight_gradient_sink.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>
#include <vector>

#include "models/functions/linear_function.h"

namespace tandem::weight_gradient_sink_test {
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

using Operands = DeferredGradients::Operands;

// How many microbatches came in each call.
std::vector<size_t> calls;

std::vector<at::Tensor> Product(const std::vector<at::Tensor>& weights,
                                absl::Span<const Operands> microbatches,
                                absl::Span<const int64_t> settings) {
  calls.push_back(microbatches.size());
  at::Tensor sum = at::zeros_like(weights[0]);
  for (const Operands& each : microbatches) sum += each[0] * settings[0];
  return {sum};
}

DeferredGradients Left(const at::Tensor& weight, double value,
                       int64_t setting = 1) {
  DeferredGradients gradients;
  gradients.weights = {weight};
  gradients.function = Product;
  gradients.settings = {setting};
  gradients.operands = {at::full({2}, value)};
  return gradients;
}

class FlushTogether : public testing::Test {
 protected:
  FlushTogether() {
    calls.clear();
    for (auto& sink : sinks_) sink = std::make_shared<WeightGradientSink>();
  }
  void ExpectGradient(const at::Tensor& weight, double expected) {
    ASSERT_TRUE(weight.grad().defined());
    EXPECT_TRUE(weight.grad().equal(at::full({2}, expected)));
  }
  std::vector<std::shared_ptr<WeightGradientSink>> sinks_ =
      std::vector<std::shared_ptr<WeightGradientSink>>(3);
  const at::Tensor a_ = at::zeros({2}).requires_grad_();
  const at::Tensor b_ = at::zeros({2}).requires_grad_();
};

TEST_F(FlushTogether, CallsOnceForWhatIsOfOneKind) {
  double value = 1;
  for (const auto& sink : sinks_) {
    sink->Defer(Left(a_, value));
    sink->Defer(Left(b_, 10 * value));
    value *= 2;
  }
  ASSERT_TRUE(WeightGradientSink::FlushTogether(sinks_).ok());
  EXPECT_EQ(calls, (std::vector<size_t>{3, 3}));
  ExpectGradient(a_, 7);
  ExpectGradient(b_, 70);
  for (const auto& sink : sinks_) EXPECT_EQ(sink->size(), 0u);
}

TEST_F(FlushTogether, KeepsApartWhatDiffersInItsSettings) {
  sinks_[0]->Defer(Left(a_, 1, 1));
  sinks_[1]->Defer(Left(a_, 1, 2));
  sinks_[2]->Defer(Left(a_, 1, 2));
  ASSERT_TRUE(WeightGradientSink::FlushTogether(sinks_).ok());
  EXPECT_EQ(calls, (std::vector<size_t>{1, 2}));
  ExpectGradient(a_, 5);
}

// A weight that two layers share, one of them in a way of its own.
TEST_F(FlushTogether, HandsOverASharedWeightOnceWhenItIsComplete) {
  int handed_over = 0;
  a_.register_hook([&handed_over](at::Tensor gradient) {
    ++handed_over;
    return gradient;
  });
  for (const auto& sink : sinks_) {
    sink->Defer(Left(a_, 1));
    sink->Defer(Left(b_, 1));
    sink->Defer(Left(a_, 10));
    sink->Defer(a_, [] { return at::full({2}, 100.0); });
  }
  ASSERT_TRUE(WeightGradientSink::FlushTogether(sinks_).ok());
  EXPECT_EQ(calls, (std::vector<size_t>{3, 3, 3}));
  EXPECT_EQ(handed_over, 1);
  ExpectGradient(a_, 333);
  ExpectGradient(b_, 3);
}

TEST_F(FlushTogether, LeavesTheTensorsThatItIsGivenAlone) {
  const at::Tensor given = at::full({2}, 1.0);
  for (const auto& sink : sinks_) sink->Defer(a_, [given] { return given; });
  ASSERT_TRUE(WeightGradientSink::FlushTogether(sinks_).ok());
  ExpectGradient(a_, 3);
  EXPECT_TRUE(given.equal(at::full({2}, 1.0)));
}

TEST_F(FlushTogether, AddsToWhatIsThere) {
  at::Tensor a = a_;
  a.mutable_grad() = at::full({2}, 5.0);
  for (const auto& sink : sinks_) sink->Defer(Left(a_, 1));
  ASSERT_TRUE(WeightGradientSink::FlushTogether(sinks_).ok());
  ExpectGradient(a_, 8);
}

TEST_F(FlushTogether, SinksMayBeEmptyOrNone) {
  EXPECT_TRUE(WeightGradientSink::FlushTogether({}).ok());
  EXPECT_TRUE(WeightGradientSink::FlushTogether(sinks_).ok());
  sinks_[1]->Defer(Left(a_, 1));
  EXPECT_TRUE(WeightGradientSink::FlushTogether(sinks_).ok());
  ExpectGradient(a_, 1);
}

TEST_F(FlushTogether, AnErrorIsAStatusAndDropsTheRest) {
  for (const auto& sink : sinks_) sink->Defer(a_, [] { return at::ones({7}); });
  EXPECT_FALSE(WeightGradientSink::FlushTogether(sinks_).ok());
  for (const auto& sink : sinks_) EXPECT_EQ(sink->size(), 0u);
}

}  // namespace
}  // namespace tandem::weight_gradient_sink_test
