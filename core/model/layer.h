// Layers: a model is a list of them, so that it can be cut between any two.
//
// `LayerSpec` is a layer that is not made yet (DeepSpeed's LayerSpec): any rank
// can make any part of a model alone, with the same initial values, because
// these are a function of (seed, parameter name).

#ifndef TANDEM_CORE_MODEL_LAYER_H_
#define TANDEM_CORE_MODEL_LAYER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/tensors.h"
#include "core/model/layer_links.h"
#include "core/model/parameter_traits.h"

namespace torch {
namespace nn {
class Module;
}  // namespace nn
}  // namespace torch

namespace tandem {

// Tensors on their way past layers, by the names that LayerLinks gives them:
// skip connections, and a batch's further inputs.
using Skips = std::map<std::string, at::Tensor>;

// One layer: maps a tensor to a tensor.
struct Layer {
  // Prefix of its state names: parameter `weight` of layer "conv1" is
  // "conv1.weight", as in PyTorch.
  std::string name;
  // Holds the parameters and buffers; null for a layer without any.
  std::shared_ptr<torch::nn::Module> module;
  // Calls the module's forward. Differentiable.
  std::function<at::Tensor(const at::Tensor&)> forward;
  // Instead of `forward`, for a layer with links.stash, links.pop or
  // links.reads: puts the first into the map, finds the others there, may take
  // the second out of it (whoever else takes them has them all the same), and
  // leaves the third where they are.
  std::function<at::Tensor(const at::Tensor&, Skips&)> forward_with_skips = {};
  // The links of its spec; MakeLayers sees to it.
  LayerLinks links = {};
  // By a parameter's name in this layer: as it is made, those that follow of
  // its place on an axis (core/model/axis/tensor_parallel.h); MakeLayers adds
  // what its spec says.
  TraitsByName traits = {};
};

// How to make a layer.
struct LayerSpec {
  std::string name;
  std::string type;  // PyTorch's class name where there is one: "Linear"
  // Makes the layer on the CPU, in float32. Its initial values depend on
  // nothing but `seed` and the parameters' full names.
  std::function<Layer(uint64_t seed)> make;
  LayerLinks links = {};
  // Instead of `make`, for a layer with links.ties. It takes `shared`,
  // parameters by the names that they have in this layer, as its own; a tied
  // one that is not there (its layer is made elsewhere) it makes anew, with the
  // initial values of the one that it is tied to.
  std::function<Layer(uint64_t seed, const NamedTensors& shared)> make_tied =
      {};
  // By a parameter's name in this layer ("weight"). A tied one has those of the
  // parameter that it is tied to.
  TraitsByName traits = {};
};

using LayerList = std::vector<Layer>;
using LayerSpecs = std::vector<LayerSpec>;

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_LAYER_H_
