#include "models/modules/layers_of.h"

#include <ATen/Tensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <glog/logging.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/model/layer_flow.h"
#include "core/random/default_generator.h"
#include "models/modules/module_call.h"
#include "models/modules/module_paths.h"
#include "models/modules/tree_values.h"

namespace tandem {
namespace {

// Puts a module's buffers back, at its end, to what they are at its beginning.
// Without gradients.
class BuffersBefore {
 public:
  explicit BuffersBefore(const torch::nn::Module& module)
      : buffers_(module.buffers()) {
    for (const at::Tensor& each : buffers_) values_.push_back(each.clone());
  }
  ~BuffersBefore() {
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(values_[i]);
  }
  BuffersBefore(const BuffersBefore&) = delete;
  BuffersBefore& operator=(const BuffersBefore&) = delete;

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> values_;
};

// The seed of what modules draw on an example.
constexpr uint64_t kSeedOfExample = 0;

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

// The same tree of copies: a module may write to what it is given.
absl::StatusOr<c10::IValue> CopyOfTree(const c10::IValue& tree) {
  TANDEM_ASSIGN_OR_RETURN(const TreeForm form, TreeForm::Of(tree));
  TANDEM_ASSIGN_OR_RETURN(std::vector<at::Tensor> tensors, form.Take(tree));
  for (at::Tensor& each : tensors) each = each.clone();
  return form.Build(tensors);
}

// InvalidArgument where `own`, the module's forward, gives something else for
// `example` than the layers did, one after the other, with the same draws. A
// forward that fails on the example (one that is not meant to be called) is
// logged.
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

// Where there is no example to compare on: logs, by name, what looks as if the
// forward did more than call the layers.
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

namespace nn = torch::nn;

// One layer: its module, how it is called, and what it takes and gives.
struct Plan {
  std::string name;
  std::shared_ptr<nn::Module> module;
  ModuleCall call;
  TreeForm takes, gives;
  // Names of the tensors behind the first one.
  std::vector<std::string> taken, given;
};

ModuleCall CallInSequential(const ModuleAtPath& each) {
  const auto parent =
      std::dynamic_pointer_cast<nn::SequentialImpl>(each.parent);
  if (parent == nullptr) return nullptr;
  for (nn::AnyModule& any : *parent) {
    if (any.ptr() == each.module) return AnyModuleCall(any);
  }
  return nullptr;
}

ModuleCall FindCall(const ModuleAtPath& each, const ModuleCalls& calls) {
  if (ModuleCall call = calls.Find(each.module)) return call;
  const auto whole = std::dynamic_pointer_cast<nn::SequentialImpl>(each.module);
  return whole != nullptr ? SequentialCall(whole) : CallInSequential(each);
}

// Error for a module that nobody says how to call.
absl::Status NotCalled(const ModuleAtPath& each) {
  const bool holds = dynamic_cast<nn::ModuleListImpl*>(each.module.get()) ||
                     dynamic_cast<nn::ModuleDictImpl*>(each.module.get());
  const std::string what =
      absl::StrCat("'", each.path, "' is a ", each.module->name());
  if (holds) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ", which has no forward: name what it holds, '",
                     each.path, ".*'"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what,
      ", of which LayersOf does not know how it is called: add its class, ",
      "LayersOf<", each.module->name(), ", ...>"));
}

absl::StatusOr<std::vector<Plan>> Plans(
    const std::vector<ModuleAtPath>& modules, const ModuleCalls& calls) {
  std::vector<Plan> plans;
  for (const ModuleAtPath& each : modules) {
    ModuleCall call = FindCall(each, calls);
    if (call == nullptr) return NotCalled(each);
    plans.push_back({each.path, each.module, std::move(call), {}, {}, {}, {}});
  }
  return plans;
}

// Finds what the first layer takes and what each layer gives. Returns what the
// last one gives for the example.
absl::StatusOr<c10::IValue> FindForms(const c10::IValue& example,
                                      std::vector<Plan>& plans) {
  const at::NoGradGuard no_grad;
  const DefaultGeneratorScope draws(kSeedOfExample);
  absl::StatusOr<TreeForm> form = TreeForm::Of(example);
  TANDEM_RETURN_IF_ERROR(Annotate(form.status(), "the example"));
  TANDEM_ASSIGN_OR_RETURN(c10::IValue value, CopyOfTree(example));
  for (Plan& plan : plans) {
    const BuffersBefore buffers(*plan.module);
    plan.takes = *form;
    TANDEM_ASSIGN_OR_RETURN(
        value, CatchTorchOr([&] { return plan.call(value); },
                            absl::StrCat("the example in '", plan.name, "'")));
    form = TreeForm::Of(value);
    TANDEM_RETURN_IF_ERROR(
        Annotate(form.status(), absl::StrCat("what '", plan.name, "' gives")));
    plan.gives = *form;
  }
  return value;
}

void NameTensors(std::vector<Plan>& plans) {
  std::string name = kInputTree;
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].taken = FurtherNames(plans[i].takes, name);
    name = i + 1 < plans.size() ? absl::StrCat(plans[i].name, ".", kOutputTree)
                                : kOutputTree;
    plans[i].given = FurtherNames(plans[i].gives, name);
  }
}

// The first tensor of what the layer gives; the others go to `skips`. As they
// are where they have crossed a cut: bits depend on it.
at::Tensor Run(const Plan& plan, const at::Tensor& x, Skips& skips) {
  std::vector<at::Tensor> tensors = {x};
  for (const std::string& each : plan.taken) tensors.push_back(skips.at(each));
  const c10::IValue output = plan.call(plan.takes.Build(tensors));
  const absl::StatusOr<std::vector<at::Tensor>> given = plan.gives.Take(output);
  TORCH_CHECK_VALUE(given.ok(), "it gives ", given.status().message(),
                    " (LayersOf learns it from an example)");
  for (size_t i = 0; i < plan.given.size(); ++i) {
    skips[plan.given[i]] = Dense((*given)[i + 1]);
  }
  return Dense(given->front());
}

Layer MakeLayer(const Plan& plan) {
  Layer layer;
  layer.name = plan.name;
  layer.module = plan.module;
  if (plan.taken.empty() && plan.given.empty()) {
    layer.forward = [plan](const at::Tensor& x) {
      Skips none;
      return Run(plan, x, none);
    };
  } else {
    layer.forward_with_skips = [plan](const at::Tensor& x, Skips& skips) {
      return Run(plan, x, skips);
    };
  }
  return layer;
}

// "Linear" of "torch::nn::LinearImpl".
std::string ModuleType(const nn::Module& module) {
  const std::string& name = module.name();
  const size_t colon = name.rfind(':');
  const std::string last =
      colon == std::string::npos ? name : name.substr(colon + 1);
  return std::string(absl::StripSuffix(last, "Impl"));
}

LayerSpec PlannedLayer(const Plan& plan, bool is_first) {
  LayerSpec spec;
  spec.name = plan.name;
  spec.type = ModuleType(*plan.module);
  spec.make = [layer = MakeLayer(plan)](uint64_t) { return layer; };
  (is_first ? spec.links.reads : spec.links.pop) = plan.taken;
  spec.links.stash = plan.given;
  return spec;
}

ModuleLayers LayersOfPlans(std::vector<Plan> plans) {
  NameTensors(plans);
  ModuleLayers layers;
  for (const Plan& plan : plans) {
    layers.specs.push_back(PlannedLayer(plan, layers.specs.empty()));
  }
  layers.inputs = plans.front().takes;
  layers.outputs = plans.back().gives;
  return layers;
}

}  // namespace

// Its forward is this one: each after the other.
absl::StatusOr<ModuleLayers> LayersOf(const nn::Sequential& sequential,
                                      const ExampleInput& example) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ModuleAtPath> modules,
                          ModulesAt(sequential.ptr(), {"*"}));
  TANDEM_ASSIGN_OR_RETURN(std::vector<Plan> plans,
                          Plans(modules, ModuleCalls()));
  if (example.has_value()) {
    TANDEM_RETURN_IF_ERROR(FindForms(*example, plans).status());
  }
  return LayersOfPlans(std::move(plans));
}

namespace layers_of_internal {

absl::StatusOr<ModuleLayers> LayersOfModule(
    const std::shared_ptr<nn::Module>& module,
    const std::vector<std::string>& patterns, const ModuleCalls& calls,
    const ExampleInput& example, const ModuleCall& own_forward) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ModuleAtPath> modules,
                          ModulesAt(module, patterns));
  TANDEM_ASSIGN_OR_RETURN(std::vector<Plan> plans, Plans(modules, calls));
  if (!example.has_value()) {
    WarnOfUnlikelyLayers(*module, modules);
    return LayersOfPlans(std::move(plans));
  }
  TANDEM_ASSIGN_OR_RETURN(const c10::IValue of_layers,
                          FindForms(*example, plans));
  if (own_forward != nullptr) {
    TANDEM_RETURN_IF_ERROR(
        CheckAgainstOwnForward(*module, own_forward, *example, of_layers));
  }
  return LayersOfPlans(std::move(plans));
}

}  // namespace layers_of_internal

}  // namespace tandem
