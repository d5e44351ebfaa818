#include "models/layers/token_embedding.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/tensors.h"
#include "core/meta/shapes.h"
#include "core/model/axis/shard.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/axis/tensor_region.h"
#include "core/model/layer_list.h"
#include "models/functions/embedding_function.h"
#include "models/functions/linear_function.h"
#include "models/layers/module_layer.h"
#include "models/layers/tensor_parallel_linear.h"

namespace tandem {
namespace {

constexpr char kWeight[] = "weight";

// Its weight is divided where that which it is tied to is.
class TiedLinear : public torch::nn::Module {
 public:
  TiedLinear(const at::Tensor& weight, const TensorRegion& region)
      : weight_(register_parameter(kWeight, weight)), region_(region) {}

  at::Tensor forward(const at::Tensor& x) const {
    return LinearFunction(region_.Enter(x), weight_,
                          /*bias=*/{}, WeightLayout::kOutIn);
  }

 private:
  at::Tensor weight_;
  TensorRegion region_;
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

// What follows of its place for a parameter of a layer of this spec, which is
// not made for it.
ParameterTraits PlaceOf(const LayerSpec& owner, const std::string& name) {
  const MetaScope no_storage;
  const TraitsByName all = NamedTraits(MakeLayers({owner}, /*seed=*/0));
  return EffectiveTraits(all, name);
}

class TokenEmbedding : public torch::nn::Module, public TensorParallelModule {
 public:
  TokenEmbedding(int64_t vocabulary, int64_t width)
      : weight_(register_parameter(kWeight, at::empty({vocabulary, width}))) {}

  at::Tensor forward(const at::Tensor& tokens) const {
    if (region_.is_whole()) return EmbeddingFunction(tokens, weight_);
    region_.CheckTokens(tokens.size(1));
    const at::Tensor is_elsewhere = IsElsewhere(tokens);
    const at::Tensor found = EmbeddingFunction(
        (tokens - rows_.begin).masked_fill(is_elsewhere, 0), weight_);
    return region_.Leave(found.masked_fill(is_elsewhere.unsqueeze(-1), 0));
  }

  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& name) override {
    vocabulary_ = weight_.size(0);
    rows_ = RangeOfRank(vocabulary_, parallel.group->degree(),
                        parallel.group->index());
    region_ = TensorRegion(parallel, name);
    ColumnShape rows;
    rows.may_be_uneven = true;
    return DivideColumns({kWeight, weight_, WeightLayout::kOutIn}, {}, rows,
                         parallel, name)
        .traits;
  }

 private:
  // Whether other ranks have a token of the vocabulary. Numbers of no token are
  // nowhere, and so they are refused by all ranks.
  at::Tensor IsElsewhere(const at::Tensor& tokens) const {
    const at::Tensor is_before =
        tokens.ge(0).logical_and(tokens.lt(rows_.begin));
    const at::Tensor is_behind =
        tokens.ge(rows_.begin + rows_.size).logical_and(tokens.lt(vocabulary_));
    return is_before.logical_or(is_behind);
  }

  at::Tensor weight_;
  TensorRegion region_;
  int64_t vocabulary_ = 0;  // of all ranks
  ShardRange rows_;
};

}  // namespace

LayerSpec TiedLinearLayer(const std::string& name, const LayerSpec& owner,
                          const std::string& tied_to) {
  LayerSpec spec;
  spec.name = name;
  spec.type = "Linear";
  spec.links.ties = {{kWeight, tied_to}};
  spec.make_tied = [=](uint64_t seed, const NamedTensors& shared) {
    const auto parallel = TensorParallelScope::Current();
    const auto module = std::make_shared<TiedLinear>(
        shared.empty() ? MakeParameter(owner, seed, tied_to)
                       : shared.front().second,
        parallel == nullptr ? TensorRegion() : TensorRegion(*parallel, name));
    Layer layer;
    layer.name = name;
    if (parallel != nullptr) layer.traits[kWeight] = PlaceOf(owner, tied_to);
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

LayerSpec LinearHeadLayer(const std::string& name, int64_t width,
                          int64_t vocabulary, const InitialRule& rule) {
  ColumnShape rows;
  rows.may_be_uneven = true;
  return ColumnParallelLinearLayer(name, width, vocabulary, /*bias=*/false,
                                   rule, rows);
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
