#include "parallel/strategy/mesh_checks.h"

#include <ATen/ops/empty.h>

#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_agreement.h"
#include "core/model/layer_list.h"
#include "core/model/parameter_traits.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/pipeline/model.h"
#include "parallel/step/parts/step_parts.h"

namespace tandem {
namespace {

absl::Status CheckAxis(const std::string& parameter, const std::string& axis,
                       const Mesh& mesh) {
  const bool is_there = absl::c_any_of(
      mesh.axes(), [&](const MeshAxis& each) { return each.name == axis; });
  if (is_there) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", parameter, " has a trait along axis '", axis,
                   "', but the mesh is ", mesh.ToString()));
}

absl::Status CheckOne(const std::string& parameter,
                      const ParameterTraits& traits, const Mesh& mesh) {
  for (const std::string& axis : traits.reduce_axes) {
    TANDEM_RETURN_IF_ERROR(CheckAxis(parameter, axis, mesh));
  }
  if (traits.reduces_over(kPipeAxis)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the gradient of parameter ", parameter,
        " cannot be reduced along the pipeline: each of its ranks has other "
        "parameters (tie weights that lie in several layers: "
        "LayerLinks::ties)"));
  }
  if (!traits.shard.has_value()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(CheckAxis(parameter, traits.shard->axis, mesh));
  if (mesh.degree(traits.shard->axis) == 1) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "parameter ", parameter, " is sharded along ", traits.shard->axis,
      ", which has ", mesh.degree(traits.shard->axis),
      " ranks: no strategy shards parameters yet"));
}

std::string LayersText(const LayerSpecs& specs) {
  return absl::StrJoin(specs, ", ", [](std::string* out, const auto& layer) {
    absl::StrAppend(out, layer.name, " (", layer.type, ")");
  });
}

constexpr char kTrained[] = "trained";
constexpr char kFrozen[] = "frozen";
constexpr char kEmpty[] = "empty";  // has no value yet
constexpr char kBuffer[] = "buffer";

// A model's tensors on all ranks, without memory: what checks of options go by.
struct ModelNames {
  NamedTensors parameters, buffers;
  std::map<std::string, std::string> stage_of;
};

const char* ParameterKind(const at::Tensor& parameter) {
  if (!parameter.defined()) return kEmpty;
  return parameter.requires_grad() ? kTrained : kFrozen;
}

// A line each: KIND STAGE TENSOR NAME, where names of one parameter have the
// same TENSOR, a number.
std::string ParameterLines(const PipelineExecutor::Stages& stages) {
  std::string lines;
  std::map<const void*, size_t> numbers;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] == nullptr) continue;
    for (const auto& [name, tensor] : NamedParameters(stages[i]->layers())) {
      const size_t number =
          numbers.emplace(tensor.unsafeGetTensorImpl(), numbers.size())
              .first->second;
      absl::StrAppend(&lines, ParameterKind(tensor), " ", i, " ", number, " ",
                      name, "\n");
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

TraitsByName NamedTraits(const LayerSpecs& specs) {
  TraitsByName all;
  for (const LayerSpec& spec : specs) {
    for (const auto& [name, traits] : spec.traits) {
      all[absl::StrCat(spec.name, ".", name)] = traits;
    }
  }
  return all;
}

absl::Status CheckTraits(const TraitsByName& traits, const Mesh& mesh) {
  for (const auto& [name, own] : traits) {
    TANDEM_RETURN_IF_ERROR(CheckOne(name, own, mesh));
  }
  return absl::OkStatus();
}

absl::Status CheckAllAreReduced(const TraitsByName& traits, const Mesh& mesh,
                                absl::string_view what) {
  if (mesh.replicas() == 1) return absl::OkStatus();
  for (const auto& [name, own] : traits) {
    if (own.reduces_over(kDataAxis)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of parameter ", name,
                     " is not reduced over replicas, which does not go with ",
                     what, ": leave one of the two out"));
  }
  return absl::OkStatus();
}

NamedValues MeshStrategyValues(const LayerSpecs& specs,
                               const LossFunction& loss,
                               const MeshStrategyOptions& options) {
  NamedValues values;
  DescribeStepParts(options, values);
  values["layers"] = LayersText(specs);
  values["parameters' traits"] = absl::StrJoin(
      NamedTraits(specs), "; ", [](std::string* out, const auto& each) {
        absl::StrAppend(out, each.first, " ", Describe(each.second));
      });
  values["loss's outputs"] = absl::StrJoin(loss.names().outputs, ",");
  values["loss's targets"] = absl::StrJoin(loss.names().targets, ",");
  return values;
}

absl::Status CheckSameOptions(const LayerSpecs& specs, const LossFunction& loss,
                              const MeshStrategyOptions& options,
                              Communicator* world) {
  if (world == nullptr || world->size() == 1) return absl::OkStatus();
  return AgreeInGroup(MeshStrategyValues(specs, loss, options),
                      "models and options", *world);
}

absl::Status CheckNames(MeshModel& model) {
  std::vector<std::string> all = {ParameterLines(model.executor->stages())};
  if (model.groups.pipe() != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(
        all, model.groups.pipe()->AllGatherString(
                 all[0], [] { return "which stages have which tensors"; }));
  }
  ModelNames names;
  for (const std::string& lines : all) AddLines(lines, &names);
  for (const auto& each : names.parameters) {
    model.parameter_names.insert(each.first);
  }
  for (const auto& each : names.buffers) model.buffer_names.insert(each.first);
  Tie(model.tied, &names.parameters);
  TANDEM_RETURN_IF_ERROR(
      CheckDdpOptions(model.options.ddp, names.parameters, names.buffers));
  return CheckPlaces(model.options.ddp, names.stage_of);
}

absl::Status CheckOptimizerGroups(const MeshModel& model) {
  Communicator* const world = model.groups.world();
  if (world == nullptr || model.options.optimizer_group == nullptr) {
    return absl::OkStatus();
  }
  NamedValues groups;
  for (const std::string& name : model.parameter_names) {
    groups[absl::StrCat("optimizer_group of ", name)] =
        absl::StrCat(model.options.optimizer_group(name));
  }
  return AgreeInGroup(groups, "models and options", *world);
}

absl::Status CompareReplicas(const MeshModel& model) {
  if (model.groups.replicas() == 1 || !model.options.ddp.init_sync) {
    return absl::OkStatus();
  }
  absl::Status differ;
  for (size_t i = 0; i < model.executor->stages().size(); ++i) {
    const auto& stage = model.executor->stages()[i];
    if (stage == nullptr) continue;
    const NamedTensors parameters = NamedParameters(stage->layers());
    const std::vector<std::string> ignored =
        WithFirstNames(model.options.ddp, parameters).parameters_to_ignore;
    NamedTensors alike;
    for (const NamedTensors& some :
         {UnderFirstNames(parameters), NamedBuffers(stage->layers())}) {
      for (const auto& each : some) {
        if (!absl::c_linear_search(ignored, each.first)) alike.push_back(each);
      }
    }
    differ.Update(
        Annotate(CheckSameModel(alike, *model.groups.data(static_cast<int>(i))),
                 stage->name()));
  }
  return model.Agree(differ);
}

}  // namespace tandem
