// Whole models with their backward in two parts: first the gradients of all
// inputs, then those of all weights.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/context/compute_context.h"
#include "core/model/layer_list.h"
#include "core/model/weight_gradient_sink.h"
#include "core/testing/device_types.h"
#include "models/registry.h"

namespace tandem::zero_bubble_test {
namespace {

struct Job {
  explicit Job(const std::string& model) {
    ModelOptions options = {model, {3, 40, 40}, 7};
    const bool tokens = model.substr(0, 3) == "gpt";
    if (tokens) options = {model, {128}, 256, true};
    layers = MakeLayers(MakeModel(options).value(), /*seed=*/3);
    inputs = tokens
                 ? (at::arange(9 * 128, at::kLong) * 7 % 256).view({9, 128})
                 : at::linspace(-1, 1, 9 * 3 * 1600).sin().view({9, 3, 40, 40});
    for (const Layer& layer : layers) {
      if (layer.module != nullptr) layer.module->to(TestDevice());
    }
    inputs = inputs.to(TestDevice());
    parameters = NamedParameters(layers);
  }
  void Backward(int64_t first, int64_t count) const {
    const SampleScope scope({/*seed=*/1, /*step=*/2, first});
    Forward(layers, inputs.narrow(0, first, count)).square().sum().backward();
  }
  void ToDouble() {
    for (const Layer& layer : layers) {
      if (layer.module != nullptr) layer.module->to(at::kDouble);
    }
    if (inputs.is_floating_point()) inputs = inputs.to(at::kDouble);
  }
  // Also clears them.
  std::vector<at::Tensor> Gradients() const {
    std::vector<at::Tensor> all;
    for (const auto& each : parameters) all.push_back(each.second.grad());
    for (const auto& each : parameters) {
      at::Tensor(each.second).mutable_grad().reset();
    }
    return all;
  }

  LayerList layers;
  at::Tensor inputs;
  NamedTensors parameters;
};

class ZeroBubble : public DeviceTypesAnd<std::string> {};

TEST_P(ZeroBubble, GivesTheJointBackwardsBits) {
  const Job job(value());
  job.Backward(0, 3);
  const std::vector<at::Tensor> expected = job.Gradients();
  const auto sink = std::make_shared<WeightGradientSink>();
  {
    const WeightGradientSink::Scope scope(sink);
    job.Backward(0, 3);
  }
  EXPECT_EQ(sink->size(), job.parameters.size());
  for (const auto& [name, parameter] : job.parameters) {
    EXPECT_FALSE(parameter.grad().defined()) << name;
  }
  ASSERT_TRUE(sink->Flush().ok());
  const std::vector<at::Tensor> actual = job.Gradients();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(actual[i].equal(expected[i])) << job.parameters[i].first;
  }
}

struct Count : torch::autograd::FunctionPostHook {
  explicit Count(int* count) : count(count) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& gradients) override {
    *count += gradients[0].defined();  // it also hears of those left for later
    return outputs;
  }
  int* count;
};

// Uneven ones: 2, 3 and 4 samples. In double: in float32 rounding, which whole
// models carry on, would hide an error.
TEST_P(ZeroBubble, SeveralMicrobatchesAtOnceAddUpAndAreHandedOverOnce) {
  Job job(value());
  job.ToDouble();
  for (int i = 0; i < 3; ++i) job.Backward(i == 0 ? 0 : 3 * i - 1, i + 2);
  const std::vector<at::Tensor> expected = job.Gradients();
  std::vector<int> times(job.parameters.size());
  std::vector<c10::intrusive_ptr<torch::autograd::Node>> accumulators;
  for (size_t i = 0; i < times.size(); ++i) {
    accumulators.push_back(
        torch::autograd::impl::grad_accumulator(job.parameters[i].second));
    accumulators.back()->add_post_hook(std::make_unique<Count>(&times[i]));
  }
  std::vector<std::shared_ptr<WeightGradientSink>> sinks;
  for (int i = 0; i < 3; ++i) {
    sinks.push_back(std::make_shared<WeightGradientSink>());
    const WeightGradientSink::Scope scope(sinks.back());
    job.Backward(i == 0 ? 0 : 3 * i - 1, i + 2);
  }
  ASSERT_TRUE(WeightGradientSink::FlushTogether(sinks).ok());
  const std::vector<at::Tensor> actual = job.Gradients();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LE((actual[i] - expected[i]).norm().item<double>(),
              1e-10 * expected[i].norm().item<double>())
        << job.parameters[i].first;
    EXPECT_EQ(times[i], 1) << job.parameters[i].first;
    EXPECT_EQ(actual[i].strides(), job.parameters[i].second.strides());
  }
}

TANDEM_ON_DEVICE_TYPES_AND(
    ZeroBubble,
    testing::Values(std::string("cnn"), std::string("gpt_tiny"),
                    std::string("gpt_tiny_tied"), std::string("mlp_dropout"),
                    std::string("mlp_small"), std::string("resnet18"),
                    std::string("unet_tiny")));

}  // namespace
}  // namespace tandem::zero_bubble_test
