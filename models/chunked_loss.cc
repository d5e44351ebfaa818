#include "models/chunked_loss.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/model/layer_maker.h"
#include "models/classification_loss.h"
#include "models/functions/linear_cross_entropy_function.h"

namespace tandem {
namespace {

constexpr char kWeight[] = "weight";

Layer HandsItsWeightOn(Layer layer, const std::string& skip) {
  TORCH_CHECK_VALUE(
      layer.module != nullptr && layer.module->named_parameters().size() == 1 &&
          layer.module->named_parameters().contains(kWeight),
      "layer ", layer.name,
      ": a loss in chunks takes a linear layer's weight, but this one has no "
      "weight, or more than that, such as a bias");
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
  if (specs.empty() || specs.back().type != "Linear" ||
      specs.back().links.has_skips()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a loss in chunks needs a model that ends in a linear layer, but this "
        "one ends in ",
        specs.empty() ? "nothing"
                      : absl::StrCat("layer ", specs.back().name, " of type ",
                                     specs.back().type)));
  }
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
  LossFunction::Weight weight;
  if (ignore_index) weight = CrossEntropyIgnoring(*ignore_index).weight();
  return LossFunction::OfAnyPrecision(LossFunction(
      std::move(names),
      [head_weight, chunk, ignore_index](const LossArguments& arguments) {
        const at::Tensor& x = arguments.outputs;
        const at::Tensor labels = arguments.targets.flatten();
        return LossOfRows(LinearCrossEntropyFunction(
                              x.reshape({-1, x.size(-1)}),
                              arguments.further_outputs.at(head_weight), labels,
                              ignore_index, chunk),
                          labels, ignore_index);
      },
      weight));
}

}  // namespace tandem
