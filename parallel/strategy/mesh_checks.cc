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
#include "core/base/text_fields.h"
#include "core/base/torch_status.h"
#include "core/comm/group_agreement.h"
#include "core/digest/sha256.h"
#include "core/model/layer_list.h"
#include "core/model/parameter_traits.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/pipeline/model.h"
#include "parallel/step/parts/step_parts.h"
#include "parallel/strategy/owned_state.h"

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
  if (traits.shard->axis == kTensorAxis) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "parameter ", parameter, " is sharded along ", traits.shard->axis,
      ", which has ", mesh.degree(traits.shard->axis),
      " ranks: layers are divided along tensor alone"));
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

namespace {

// A stage's tensors, as all ranks have them that have the stage: of what is
// sharded, in parts that may be uneven, the whole.
absl::StatusOr<std::string> DescribeStage(const MeshModel& model,
                                          const PipelineStage& stage) {
  const NamedTensors parameters = NamedParameters(stage.layers());
  TANDEM_ASSIGN_OR_RETURN(
      const ShardsByName shards,
      FindShards(parameters, model.traits, model.mesh, model.rank()));
  const std::vector<std::string> ignored =
      WithFirstNames(model.options.ddp, parameters).parameters_to_ignore;
  NamedTensors alike;
  for (const NamedTensors& some :
       {UnderFirstNames(parameters), NamedBuffers(stage.layers())}) {
    for (const auto& each : some) {
      if (absl::c_linear_search(ignored, each.first)) continue;
      const auto shard = shards.find(each.first);
      alike.push_back(
          shard == shards.end()
              ? each
              : NamedTensors::value_type(
                    each.first,
                    at::empty(shard->second.sizes,
                              each.second.options().device(c10::kMeta))
                        .set_requires_grad(each.second.requires_grad())));
    }
  }
  return DescribeModel(alike);
}

// The first of the ranks that have the stages that `rank` has.
int FirstOfSameStages(const Mesh& mesh, int rank) {
  Mesh::Coordinates at = mesh.RankCoordinates(rank);
  for (size_t i = 0; i < at.size(); ++i) {
    if (mesh.axes()[i].name != kPipeAxis) at[i] = 0;
  }
  return mesh.RankAt(at);
}

// All of them.
std::vector<int> RanksOfSameStages(const Mesh& mesh, int rank) {
  std::vector<absl::string_view> axes;
  for (const MeshAxis& each : mesh.axes()) {
    if (each.name != kPipeAxis) axes.push_back(each.name);
  }
  return mesh.RanksAlong(axes, rank);
}

// Whether any rank's text differs from that of the first that should have the
// same: the same answer on all.
bool SomeDiffer(const std::vector<std::string>& texts, const Mesh& mesh) {
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const int first = FirstOfSameStages(mesh, rank);
    if (texts[static_cast<size_t>(rank)] != texts[static_cast<size_t>(first)]) {
      return true;
    }
  }
  return false;
}

// The first stage in which a rank differs from the first one that has the same
// stages as this one. `texts`: by rank, a field for each stage.
absl::Status FirstDifference(const std::vector<std::string>& texts,
                             const MeshModel& model) {
  const Communicator& world = *model.groups.world();
  const std::vector<int> ranks = RanksOfSameStages(model.mesh, world.rank());
  std::vector<absl::string_view> rest(texts.begin(), texts.end());
  for (const auto& stage : model.executor->stages()) {
    if (stage == nullptr) continue;
    std::string first;
    for (const int rank : ranks) {
      const std::string text(
          TakeField(&rest[static_cast<size_t>(rank)]).value_or(""));
      if (rank == ranks.front()) first = text;
      if (text == first) continue;
      return Annotate(ModelsDiffer(world.NameOf(rank), text,
                                   world.NameOf(ranks.front()), first),
                      stage->name());
    }
  }
  return absl::OkStatus();
}

}  // namespace

// Hashes first: of a large model on many ranks all texts would be gigabytes on
// each.
absl::Status CompareReplicas(const MeshModel& model) {
  if (RanksOfSameStages(model.mesh, model.rank()).size() == 1 ||
      !model.options.ddp.init_sync) {
    return absl::OkStatus();
  }
  std::string mine;
  for (const auto& stage : model.executor->stages()) {
    if (stage == nullptr) continue;
    TANDEM_ASSIGN_OR_RETURN(const std::string text,
                            DescribeStage(model, *stage));
    AppendField(text, &mine);
  }
  Sha256 hash;
  hash.Update(mine);
  Communicator& world = *model.groups.world();
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::string> texts,
                          world.AllGatherString(hash.HexDigest(), [] {
                            return "is the model the same";
                          }));
  if (!SomeDiffer(texts, model.mesh)) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(
      texts, world.AllGatherString(mine, [] { return "the models' tensors"; }));
  return model.Agree(FirstDifference(texts, model));
}

}  // namespace tandem
