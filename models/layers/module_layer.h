// Module layer: a torch::nn module as a layer.

#ifndef TANDEM_MODELS_LAYERS_MODULE_LAYER_H_
#define TANDEM_MODELS_LAYERS_MODULE_LAYER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/model/layer.h"
#include "core/random/default_generator.h"
#include "core/random/random.h"
#include "models/layers/initialize.h"

namespace tandem {

// `make` gives a new module, derived from torch::nn::Module, whose `forward`
// takes and gives one tensor. What its constructor draws from the default
// generator is a function of the seed and the layer's name. Its parameters then
// get their values by `rule`; KeepsItsValues leaves them the constructor's.
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
    return Layer{name, module, forward};
  };
  return LayerSpec{name, type, make_layer};
}

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_MODULE_LAYER_H_
