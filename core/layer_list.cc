#include "core/layer_list.h"

#include <torch/nn/module.h>

#include <string>

namespace tandem {
namespace {

void Append(const std::string& layer, const NamedTensors::value_type& tensor,
            NamedTensors& all) {
  all.emplace_back(layer + "." + tensor.first, tensor.second);
}

}  // namespace

LayerList MakeLayers(const LayerSpecs& specs, uint64_t seed) {
  LayerList layers;
  layers.reserve(specs.size());
  for (const LayerSpec& spec : specs) layers.push_back(spec.make(seed));
  return layers;
}

at::Tensor Forward(const LayerList& layers, const at::Tensor& input) {
  at::Tensor x = input;
  for (const Layer& layer : layers) x = layer.forward(x);
  return x;
}

NamedTensors NamedParameters(const LayerList& layers) {
  NamedTensors all;
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    for (const auto& item : layer.module->named_parameters()) {
      Append(layer.name, item.pair(), all);
    }
  }
  return all;
}

NamedTensors NamedBuffers(const LayerList& layers) {
  NamedTensors all;
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    for (const auto& item : layer.module->named_buffers()) {
      Append(layer.name, item.pair(), all);
    }
  }
  return all;
}

void SetTraining(const LayerList& layers, bool on) {
  for (const Layer& layer : layers) {
    if (layer.module != nullptr) layer.module->train(on);
  }
}

}  // namespace tandem
