#include "core/finite/checked_layers.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/finite/finite_check.h"
#include "core/model/layer_list.h"

namespace tandem {
namespace {

bool IsChecked(const at::Tensor& values) {
  return values.defined() && values.is_floating_point();
}

// What a person asks next: did it come in, or is it a parameter's?
std::string Causes(const Layer& layer, const at::Tensor& input) {
  const std::string input_is = !IsChecked(input) ? "is of whole numbers"
                               : IsFinite(input) ? "is finite"
                                                 : "is not finite either";
  std::string parameters = "its parameters are finite";
  for (const auto& [name, parameter] : NamedParameters({layer})) {
    if (IsFinite(parameter)) continue;
    parameters = absl::StrCat("its parameter ", name, " has ",
                              CountNonfinite(parameter));
    break;
  }
  return absl::StrCat("its input ", input_is, ", ", parameters);
}

void CheckOutput(const Layer& layer, const at::Tensor& output,
                 const at::Tensor& input, const std::string& what) {
  if (!IsChecked(output) || IsFinite(output)) return;
  ThrowNonfinite(absl::StrCat("layer ", layer.name, ": ", what, " has ",
                              CountNonfinite(output), "; ",
                              Causes(layer, input)));
}

void CheckGradient(const Layer& layer, const at::Tensor& output) {
  if (!IsChecked(output) || !output.requires_grad()) return;
  output.register_hook([name = layer.name](const at::Tensor& gradient) {
    if (!IsChecked(gradient) || IsFinite(gradient)) return;
    ThrowNonfinite(absl::StrCat("layer ", name,
                                ": the gradient of its output, which the "
                                "layers behind it computed, has ",
                                CountNonfinite(gradient)));
  });
}

at::Tensor CheckedForward(const Layer& layer, const FiniteChecks& checks,
                          const at::Tensor& input, at::Tensor output) {
  CheckOutput(layer, output, input, "its output");
  if (checks.gradients) CheckGradient(layer, output);
  return output;
}

Layer Checked(Layer layer, const FiniteChecks& checks) {
  const Layer plain = layer;
  if (plain.forward) {
    layer.forward = [plain, checks](const at::Tensor& input) {
      return CheckedForward(plain, checks, input, plain.forward(input));
    };
  }
  if (plain.forward_with_skips) {
    layer.forward_with_skips = [plain, checks](const at::Tensor& input,
                                               Skips& skips) {
      at::Tensor output = plain.forward_with_skips(input, skips);
      for (const std::string& name : plain.links.stash) {
        CheckOutput(plain, skips[name], input, absl::StrCat("its ", name));
      }
      return CheckedForward(plain, checks, input, std::move(output));
    };
  }
  return layer;
}

}  // namespace

LayerSpecs CheckedLayers(LayerSpecs specs, const FiniteChecks& checks) {
  return MadeThrough([checks](auto make) { return Checked(make(), checks); },
                     std::move(specs));
}

}  // namespace tandem
