// What the ranks of a MeshStrategy must agree on before the first step.

#include <ATen/ops/empty.h>

#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_agreement.h"
#include "core/model/layer_list.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/pipeline/model.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {
namespace {

constexpr char kTrained[] = "trained";
constexpr char kFrozen[] = "frozen";
constexpr char kEmpty[] = "empty";  // has no value yet
constexpr char kBuffer[] = "buffer";

// A model's tensors on all ranks, without memory: what checks of options go by.
struct ModelNames {
  NamedTensors parameters, buffers;
  std::map<std::string, std::string> stage_of;
};

const char* KindOf(const at::Tensor& parameter) {
  if (!parameter.defined()) return kEmpty;
  return parameter.requires_grad() ? kTrained : kFrozen;
}

// A line each: KIND STAGE TENSOR NAME, where names of one parameter have the
// same TENSOR, a number.
std::string LinesOf(const PipelineExecutor::Stages& stages) {
  std::string lines;
  std::map<const void*, size_t> numbers;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] == nullptr) continue;
    for (const auto& [name, tensor] : NamedParameters(stages[i]->layers())) {
      const size_t number =
          numbers.emplace(tensor.unsafeGetTensorImpl(), numbers.size())
              .first->second;
      absl::StrAppend(&lines, KindOf(tensor), " ", i, " ", number, " ", name,
                      "\n");
    }
    for (const auto& each : NamedBuffers(stages[i]->layers())) {
      absl::StrAppend(&lines, kBuffer, " ", i, " 0 ", each.first, "\n");
    }
  }
  return lines;
}

// One rank's.
void AddLines(const std::string& lines, ModelNames* model) {
  std::map<std::string, at::Tensor> tensors;
  for (const absl::string_view line :
       absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 3));
    const std::string& kind = parts[0];
    const std::string& name = parts[3];
    model->stage_of[name] = parts[1];
    if (kind == kBuffer) {
      model->buffers.emplace_back(name, at::Tensor());
      continue;
    }
    at::Tensor& tensor = tensors[parts[2]];
    if (!tensor.defined() && kind != kEmpty) {
      tensor = at::empty({0}, at::TensorOptions(c10::kMeta));
      tensor.requires_grad_(kind == kTrained);
    }
    model->parameters.emplace_back(name, tensor);
  }
}

// Copies of a weight are one parameter.
void Tie(const std::vector<TiedGroup>& tied, NamedTensors* parameters) {
  std::map<std::string, at::Tensor*> tensor_of;
  for (auto& [name, tensor] : *parameters) tensor_of[name] = &tensor;
  for (const TiedGroup& group : tied) {
    const auto first = tensor_of.find(group.front().name);
    for (const StageParameter& each : group) {
      const auto copy = tensor_of.find(each.name);
      if (first == tensor_of.end() || copy == tensor_of.end()) continue;
      *copy->second = *first->second;
    }
  }
}

absl::Status CheckPlaces(const DistributedDataParallelOptions& ddp,
                         const std::map<std::string, std::string>& stage_of) {
  const std::string& until = ddp.param_to_hook_all_reduce;
  for (const std::string& name : ddp.delay_all_reduce_named_params) {
    if (stage_of.at(name) == stage_of.at(until)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "delay_all_reduce_named_params names ", name, ", which is in stage ",
        stage_of.at(name), ", but param_to_hook_all_reduce ", until,
        ", which is in stage ", stage_of.at(until),
        ": name parameters of one stage"));
  }
  return absl::OkStatus();
}

}  // namespace

// What options call by name must be there, something must be left to be trained
// together, and what waits for a parameter must be in its stage. Learns what
// the pipeline's other ranks have. Collective over them.
absl::Status MeshStrategyImpl::CheckNames() {
  std::vector<std::string> all = {LinesOf(model_->executor->stages())};
  if (model_->groups.pipe() != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(
        all, model_->groups.pipe()->AllGatherString(
                 all[0], [] { return "which stages have which tensors"; }));
  }
  ModelNames model;
  for (const std::string& lines : all) AddLines(lines, &model);
  for (const auto& each : model.parameters) {
    model_->parameter_names.insert(each.first);
  }
  for (const auto& each : model.buffers) {
    model_->buffer_names.insert(each.first);
  }
  Tie(model_->tied, &model.parameters);
  TANDEM_RETURN_IF_ERROR(
      CheckDdpOptions(model_->options.ddp, model.parameters, model.buffers));
  return CheckPlaces(model_->options.ddp, model.stage_of);
}

// What the function of options.optimizer_group gives must be the same on all
// ranks. After CheckNames. Collective.
absl::Status MeshStrategyImpl::CheckGroups() const {
  if (model_->groups.world() == nullptr ||
      model_->options.optimizer_group == nullptr) {
    return absl::OkStatus();
  }
  NamedValues groups;
  for (const std::string& name : model_->parameter_names) {
    groups[absl::StrCat("optimizer_group of ", name)] =
        absl::StrCat(model_->options.optimizer_group(name));
  }
  return AgreeInGroup(groups, "models and options", *model_->groups.world());
}

absl::Status MeshStrategyImpl::CompareReplicas() {
  if (model_->groups.replicas() == 1 || !model_->options.ddp.init_sync) {
    return absl::OkStatus();
  }
  absl::Status differ;
  for (size_t i = 0; i < model_->executor->stages().size(); ++i) {
    const auto& stage = model_->executor->stages()[i];
    if (stage == nullptr) continue;
    const NamedTensors parameters = NamedParameters(stage->layers());
    const std::vector<std::string> ignored =
        WithFirstNames(model_->options.ddp, parameters).parameters_to_ignore;
    NamedTensors model;  // what is alike
    for (const NamedTensors& part :
         {UnderFirstNames(parameters), NamedBuffers(stage->layers())}) {
      for (const auto& each : part) {
        if (!absl::c_linear_search(ignored, each.first)) model.push_back(each);
      }
    }
    differ.Update(Annotate(
        CheckSameModel(model, *model_->groups.data(static_cast<int>(i))),
        stage->name()));
  }
  return model_->Agree(differ);
}

}  // namespace tandem
