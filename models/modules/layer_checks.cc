#include "models/modules/layer_checks.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <glog/logging.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/random/default_generator.h"
#include "models/modules/tree_form.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

// The same operators, called by two ways.
constexpr double kRelative = 1e-4;
constexpr double kAbsolute = 1e-5;

absl::Status OtherFunction(const std::string& how) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the layers compute another function than the module's own forward, ",
      how,
      ": what it does between its children (an activation, a sum) belongs into "
      "a module that a pattern names, or into a function in place of a child's "
      "forward (ModuleCalls). A forward that is not meant to be compared is "
      "not seen in a std::shared_ptr<torch::nn::Module>"));
}

// "" where both are the same, but for rounding.
std::string Difference(const at::Tensor& own, const at::Tensor& of_layers) {
  if (own.sizes() != of_layers.sizes() ||
      own.scalar_type() != of_layers.scalar_type()) {
    return absl::StrCat("gives ", DescribeTensor(own), " where they give ",
                        DescribeTensor(of_layers));
  }
  if (!own.is_floating_point()) {
    return own.equal(of_layers) ? "" : "gives other values";
  }
  if (own.allclose(of_layers, kRelative, kAbsolute, /*equal_nan=*/true)) {
    return "";
  }
  const double most = (own - of_layers).abs().max().item<double>();
  return absl::StrCat("gives values that differ by up to ", most);
}

bool IsAffine(const nn::Module& module) {
  return dynamic_cast<const nn::LinearImpl*>(&module) != nullptr ||
         dynamic_cast<const nn::Conv1dImpl*>(&module) != nullptr ||
         dynamic_cast<const nn::Conv2dImpl*>(&module) != nullptr ||
         dynamic_cast<const nn::Conv3dImpl*>(&module) != nullptr;
}

// By path, how many modules were registered before.
std::map<std::string, size_t> Places(const nn::Module& module) {
  std::map<std::string, size_t> places;
  for (const auto& each : module.named_modules()) {
    places.emplace(each.key(), places.size());
  }
  return places;
}

}  // namespace

absl::StatusOr<c10::IValue> CopyOfTree(const c10::IValue& tree) {
  TANDEM_ASSIGN_OR_RETURN(const TreeForm form, TreeForm::Of(tree));
  TANDEM_ASSIGN_OR_RETURN(std::vector<at::Tensor> tensors, form.Take(tree));
  for (at::Tensor& each : tensors) each = each.clone();
  return form.Build(tensors);
}

absl::Status CheckAgainstOwnForward(const nn::Module& module,
                                    const ModuleCall& own,
                                    const c10::IValue& example,
                                    const c10::IValue& of_layers) {
  const at::NoGradGuard no_grad;
  const DefaultGeneratorScope draws(kSeedOfExample);
  const BuffersBefore buffers(module);
  TANDEM_ASSIGN_OR_RETURN(const c10::IValue input, CopyOfTree(example));
  const absl::StatusOr<c10::IValue> given =
      CatchTorchOr([&] { return own(input); });
  if (!given.ok()) {
    LOG(WARNING) << "LayersOf compares nothing with the forward of "
                 << module.name() << ", which fails on the example: "
                 << given.status().message();
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(const TreeForm form, TreeForm::Of(of_layers));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<at::Tensor> theirs,
                          form.Take(of_layers));
  const absl::StatusOr<std::vector<at::Tensor>> taken = form.Take(*given);
  if (!taken.ok()) {
    return OtherFunction(
        absl::StrCat("which gives ", taken.status().message()));
  }
  for (size_t i = 0; i < theirs.size(); ++i) {
    const std::string difference = Difference((*taken)[i], theirs[i]);
    if (difference.empty()) continue;
    const std::string& path = form.paths()[i];
    return OtherFunction(absl::StrCat("which on the example ", difference,
                                      path.empty() ? "" : " at ", path));
  }
  return absl::OkStatus();
}

void WarnOfUnlikelyLayers(const nn::Module& module,
                          const std::vector<ModuleAtPath>& layers) {
  constexpr char kCure[] =
      "; with an example of its input LayersOf compares the layers with the "
      "module's forward";
  const std::map<std::string, size_t> places = Places(module);
  for (size_t i = 1; i < layers.size(); ++i) {
    const ModuleAtPath& before = layers[i - 1];
    const ModuleAtPath& each = layers[i];
    if (IsAffine(*before.module) && IsAffine(*each.module)) {
      LOG(WARNING) << "layers '" << before.path << "' and '" << each.path
                   << "' follow each other with nothing in between, as one "
                      "affine function would do: an activation in the module's "
                      "forward is not called"
                   << kCure;
    }
    if (places.at(before.path) > places.at(each.path)) {
      LOG(WARNING) << "layer '" << before.path << "' is called before '"
                   << each.path << "', which is registered before it" << kCure;
    }
  }
}

}  // namespace tandem
