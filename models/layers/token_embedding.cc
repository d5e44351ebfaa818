#include "models/layers/token_embedding.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/tensors.h"
#include "core/model/layer_list.h"
#include "models/functions/embedding_function.h"
#include "models/functions/linear_function.h"
#include "models/layers/module_layer.h"

namespace tandem {
namespace {

constexpr char kWeight[] = "weight";

class TiedLinear : public torch::nn::Module {
 public:
  explicit TiedLinear(const at::Tensor& weight)
      : weight_(register_parameter(kWeight, weight)) {}

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

class TokenEmbedding : public torch::nn::Module {
 public:
  TokenEmbedding(int64_t vocabulary, int64_t width)
      : weight_(register_parameter(kWeight, at::empty({vocabulary, width}))) {}

  at::Tensor forward(const at::Tensor& tokens) const {
    return EmbeddingFunction(tokens, weight_);
  }

 private:
  at::Tensor weight_;
};

}  // namespace

LayerSpec TiedLinearLayer(const std::string& name, const LayerSpec& owner,
                          const std::string& tied_to) {
  LayerSpec spec;
  spec.name = name;
  spec.type = "Linear";
  spec.links.ties = {{kWeight, tied_to}};
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

LayerSpec TokenEmbeddingLayer(const std::string& name, int64_t vocabulary,
                              int64_t width, const InitialRule& rule) {
  return ModuleLayer<TokenEmbedding>(
      name, "Embedding",
      [=] { return std::make_shared<TokenEmbedding>(vocabulary, width); },
      rule);
}

absl::Status CheckEndsInLinear(const LayerSpecs& specs,
                               absl::string_view what) {
  if (!specs.empty() && specs.back().type == "Linear" &&
      !specs.back().links.has_skips()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what, " needs a model that ends in a linear layer, but this one ends in ",
      specs.empty() ? "nothing"
                    : absl::StrCat("layer ", specs.back().name, " of type ",
                                   specs.back().type)));
}

at::Tensor OnlyWeight(const Layer& layer, absl::string_view takes) {
  const auto parameters = layer.module == nullptr
                              ? torch::OrderedDict<std::string, at::Tensor>()
                              : layer.module->named_parameters();
  TORCH_CHECK_VALUE(
      parameters.size() == 1 && parameters.contains(kWeight), "layer ",
      layer.name, ": ", std::string(takes),
      ", but this one has no weight, or more than that, such as a bias");
  return parameters[kWeight];
}

}  // namespace tandem
