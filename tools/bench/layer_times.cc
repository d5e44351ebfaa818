#include "tools/bench/layer_times.h"

#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>

#include "core/layer_list.h"
#include "tools/bench/usage.h"

namespace tandem {
namespace {

constexpr int kTries = 4;

double Seconds(const Usage& from, const Usage& to) {
  return (to.wall_ms - from.wall_ms) / 1e3;
}

// One try of one layer; returns its output.
at::Tensor Try(const Layer& layer, const at::Tensor& values, LayerCost& cost) {
  at::Tensor input = values.detach();
  if (at::isFloatingType(input.scalar_type())) input.requires_grad_();
  const Usage begin = Usage::Now();
  const at::Tensor output = layer.forward(input);
  const Usage middle = Usage::Now();
  cost.forward = std::min(cost.forward, Seconds(begin, middle));
  if (!output.requires_grad()) {
    cost.backward = 0;
    return output;
  }
  const at::Tensor gradient = at::ones_like(output);
  const Usage before = Usage::Now();
  torch::autograd::backward({output}, {gradient});
  cost.backward = std::min(cost.backward, Seconds(before, Usage::Now()));
  return output;
}

}  // namespace

std::vector<LayerCost> LayerTimes(const LayerList& layers,
                                  const at::Tensor& inputs) {
  LayerCost unknown;
  unknown.forward = unknown.backward = std::numeric_limits<double>::infinity();
  std::vector<LayerCost> costs(layers.size(), unknown);
  for (int i = 0; i < kTries; ++i) {
    at::Tensor values = inputs;
    for (size_t j = 0; j < layers.size(); ++j) {
      values = Try(layers[j], values, costs[j]);
    }
  }
  for (const auto& each : NamedParameters(layers)) {
    at::Tensor parameter = each.second;
    parameter.mutable_grad().reset();
  }
  return costs;
}

}  // namespace tandem
