#include "models/layers/linear_head.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr char kWeight[] = "weight";

}  // namespace

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
