// Of layers that wait: a time can be known from below alone.

#include "tools/bench/layer_times.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/layer_list.h"

namespace tandem {
namespace {

constexpr int kTries = 4;  // of each layer

void Wait(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// x -> weight * x, after a while; `inputs` notes what came.
Layer Slow(const std::string& name, double forward, double backward,
           std::vector<at::Tensor>* inputs) {
  auto module = std::make_shared<torch::nn::Module>();
  module->register_parameter("weight", at::ones({1}));
  const auto run = [=](const at::Tensor& x) {
    inputs->push_back(x);
    Wait(forward);
    at::Tensor y = module->parameters()[0] * x + 1;
    y.register_hook([backward](const at::Tensor& gradient) {
      Wait(backward);
      return gradient;
    });
    return y;
  };
  return {name, module, run};
}

// x -> x > 0, slow for the first `slow` calls.
Layer Sign(int* calls, int slow, double seconds) {
  return {"sign", nullptr, [=](const at::Tensor& x) {
            if ((*calls)++ < slow) Wait(seconds);
            return x.gt(0);
          }};
}

TEST(LayerTimesTest, EachLayerHasItsOwn) {
  std::vector<at::Tensor> first, second;
  const LayerList layers = {Slow("a", 0.02, 0.001, &first),
                            Slow("b", 0.001, 0.03, &second)};
  const std::vector<LayerCost> costs = LayerTimes(layers, at::ones({7, 3}));
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_GE(costs[0].forward, 0.02);
  EXPECT_GE(costs[0].backward, 0.001);
  EXPECT_GE(costs[1].forward, 0.001);
  EXPECT_GE(costs[1].backward, 0.03);
  for (const LayerCost& each : costs) {
    EXPECT_EQ(each.activation_bytes, 0);
    EXPECT_EQ(each.state_bytes, 0);
  }
}

TEST(LayerTimesTest, ALayerIsGivenWhatTheOneBeforeItMade) {
  std::vector<at::Tensor> first, second;
  const LayerList layers = {Slow("a", 0, 0, &first), Slow("b", 0, 0, &second)};
  LayerTimes(layers, at::ones({7, 3}));
  ASSERT_EQ(first.size(), static_cast<size_t>(kTries));
  ASSERT_EQ(second.size(), static_cast<size_t>(kTries));
  for (int i = 0; i < kTries; ++i) {
    EXPECT_TRUE(first[i].equal(at::ones({7, 3})));
    EXPECT_TRUE(second[i].equal(at::ones({7, 3}).mul(2)));
    // A graph of its own, which ends at its input.
    EXPECT_TRUE(second[i].is_leaf());
    EXPECT_TRUE(second[i].requires_grad());
  }
}

TEST(LayerTimesTest, WithoutAGraphThereIsNoBackward) {
  int calls = 0;
  const std::vector<LayerCost> costs =
      LayerTimes({Sign(&calls, 0, 0)}, at::arange(5));
  EXPECT_EQ(calls, kTries);
  EXPECT_GT(costs[0].forward, 0);
  EXPECT_EQ(costs[0].backward, 0);
}

TEST(LayerTimesTest, TheLeastOfSomeTriesCounts) {
  constexpr double kSlow = 0.3;
  int calls = 0;
  const std::vector<LayerCost> once =
      LayerTimes({Sign(&calls, kTries - 1, kSlow)}, at::ones({1}));
  EXPECT_LT(once[0].forward, kSlow);
  calls = 0;
  const std::vector<LayerCost> always =
      LayerTimes({Sign(&calls, kTries, kSlow)}, at::ones({1}));
  EXPECT_GE(always[0].forward, kSlow);
}

TEST(LayerTimesTest, NoGradientIsLeftBehind) {
  std::vector<at::Tensor> inputs;
  const LayerList layers = {Slow("a", 0, 0, &inputs)};
  LayerTimes(layers, at::ones({3}));
  EXPECT_FALSE(NamedParameters(layers)[0].second.grad().defined());
  EXPECT_TRUE(LayerTimes({}, at::ones({3})).empty());
}

}  // namespace
}  // namespace tandem
