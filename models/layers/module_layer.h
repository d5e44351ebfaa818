// Module layer: a torch::nn module as a layer.

#ifndef TANDEM_MODELS_LAYERS_MODULE_LAYER_H_
#define TANDEM_MODELS_LAYERS_MODULE_LAYER_H_

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/model/axis/tensor_parallel.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "core/random/default_generator.h"
#include "core/random/random.h"
#include "models/layers/initialize.h"

namespace tandem {

// `make` gives a new module, derived from torch::nn::Module, whose `forward`
// takes and gives one tensor. What its constructor draws from the default
// generator is a function of the seed and the layer's name. Its parameters then
// get their values by `rule`; KeepsItsValues leaves them the constructor's.
// Then, in a TensorParallelScope, it is divided, and keeps this rank's part.
template <typename Module>
LayerSpec ModuleLayer(const std::string& name, const std::string& type,
                      std::function<std::shared_ptr<Module>()> make,
                      InitialRule rule = PytorchDefault) {
  auto make_layer = [name, make, rule](uint64_t seed) {
    std::shared_ptr<Module> module;
    {
      const DefaultGeneratorScope draws(SeedFor(seed, name));
      module = make();
    }
    Initialize(*module, name, seed, rule);
    auto forward = [module](const at::Tensor& x) { return module->forward(x); };
    Layer layer{name, module, forward};
    layer.traits = DivideModule(*module, name);
    return layer;
  };
  return LayerSpec{name, type, make_layer};
}

// Position of each token within its document: int64 [n, tokens], from the
// further input kDocumentBegins.
inline at::Tensor PositionsWithin(const at::Tensor& begins) {
  return at::arange(begins.size(1), begins.options()) - begins;
}

// ModuleLayer(name, type, make, rule) of a module whose `forward` takes, behind
// its input, where documents begin, and may do without it. With
// `document_masks` the layer reads that.
template <typename Module>
LayerSpec PackedLayer(const std::string& name, const std::string& type,
                      std::function<std::shared_ptr<Module>()> make,
                      const InitialRule& rule, bool document_masks) {
  LayerSpec spec = ModuleLayer<Module>(name, type, make, rule);
  if (!document_masks) return spec;
  spec.links.reads = {kDocumentBegins};
  spec.make = [make_layer = spec.make](uint64_t seed) {
    Layer layer = make_layer(seed);
    layer.forward = nullptr;
    layer.forward_with_skips =
        [module = std::static_pointer_cast<Module>(layer.module)](
            const at::Tensor& x, Skips& skips) {
          return module->forward(x, skips.at(kDocumentBegins));
        };
    return layer;
  };
  return spec;
}

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_MODULE_LAYER_H_
