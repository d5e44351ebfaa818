#include "models/modules/layers_of.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/named_tensors.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/layer_flow.h"
#include "core/random/default_generator.h"
#include "models/modules/any_module_call.h"
#include "models/modules/layer_checks.h"
#include "models/modules/module_paths.h"

namespace tandem {
namespace {

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
    if (any.ptr() == each.module) return CallOfAny(any);
  }
  return nullptr;
}

ModuleCall FindCall(const ModuleAtPath& each, const ModuleCalls& calls) {
  if (ModuleCall call = calls.Find(each.module)) return call;
  const auto whole = std::dynamic_pointer_cast<nn::SequentialImpl>(each.module);
  return whole != nullptr ? CallOfSequential(whole) : CallInSequential(each);
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
