#include "models/chunked_loss.h"

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "models/classification_loss.h"
#include "models/functions/cross_entropy/linear_cross_entropy_function.h"
#include "models/layers/token_embedding.h"

namespace tandem {
namespace {

constexpr char kWeight[] = "weight";

Layer HandsItsWeightOn(Layer layer, const std::string& skip) {
  OnlyWeight(layer, "a loss in chunks takes a linear layer's weight");
  const auto module = layer.module;
  layer.forward = nullptr;
  layer.forward_with_skips = [module, skip](const at::Tensor& x, Skips& skips) {
    // A view: what takes its gradient may look for a node of the graph.
    const at::Tensor weight = module->named_parameters()[kWeight];
    skips[skip] = weight.view_as(weight);
    return x;
  };
  return layer;
}

}  // namespace

absl::StatusOr<LayerSpecs> WithoutLogits(LayerSpecs specs) {
  TANDEM_RETURN_IF_ERROR(CheckEndsInLinear(specs, "a loss in chunks"));
  LayerSpec& head = specs.back();
  const std::string skip = absl::StrCat(head.name, ".", kWeight);
  head.links.stash = {skip};
  head =
      MadeThrough([skip](auto make) { return HandsItsWeightOn(make(), skip); },
                  std::move(head));
  return specs;
}

LossFunction ChunkedCrossEntropy(const std::string& head_weight, int64_t chunk,
                                 std::optional<int64_t> ignore_index) {
  LossNames names;
  names.outputs = {head_weight};
  return CrossEntropyOfRows(
      std::move(names),
      [=](const LossArguments& arguments, const at::Tensor& labels) {
        const at::Tensor& x = arguments.outputs;
        return LinearCrossEntropyFunction(
            x.reshape({-1, x.size(-1)}),
            arguments.further_outputs.at(head_weight), labels, ignore_index,
            chunk);
      },
      ignore_index);
}

}  // namespace tandem
