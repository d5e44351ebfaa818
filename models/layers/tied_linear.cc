#include "models/layers/tied_linear.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "core/base/named_tensors.h"
#include "core/model/layer_list.h"
#include "models/functions/linear_function.h"

namespace tandem {
namespace {

class TiedLinear : public torch::nn::Module {
 public:
  explicit TiedLinear(const at::Tensor& weight)
      : weight_(register_parameter("weight", weight)) {}

  at::Tensor forward(const at::Tensor& x) const {
    return LinearFunction(x, weight_, /*bias=*/{}, WeightLayout::kOutIn);
  }

 private:
  at::Tensor weight_;
};

// The parameter of a layer of this spec, made anew.
at::Tensor MakeParameter(const LayerSpec& owner, uint64_t seed,
                         const std::string& name) {
  for (const auto& each : NamedParameters(MakeLayers({owner}, seed))) {
    if (each.first == name) return each.second;
  }
  TORCH_CHECK(false, "layer ", owner.name, " has no parameter ", name,
              ", which another is tied to: name it in full, with its layer");
}

}  // namespace

LayerSpec TiedLinearLayer(const std::string& name, const LayerSpec& owner,
                          const std::string& tied_to) {
  LayerSpec spec;
  spec.name = name;
  spec.type = "Linear";
  spec.links.ties = {{"weight", tied_to}};
  spec.make_tied = [=](uint64_t seed, const NamedTensors& shared) {
    const auto module = std::make_shared<TiedLinear>(
        shared.empty() ? MakeParameter(owner, seed, tied_to)
                       : shared.front().second);
    Layer layer;
    layer.name = name;
    layer.module = module;
    layer.forward = [module](const at::Tensor& x) {
      return module->forward(x);
    };
    return layer;
  };
  return spec;
}

}  // namespace tandem
