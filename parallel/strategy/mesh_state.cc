#include "parallel/strategy/mesh_state.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/Device.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/mesh/mesh.h"
#include "core/model/layer_list.h"
#include "parallel/optim/optimizer.h"
#include "parallel/pipeline/model.h"
#include "parallel/strategy/gathered_tensors.h"
#include "parallel/strategy/owned_state.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

void Append(NamedTensors more, NamedTensors* all) {
  for (auto& each : more) all->push_back(std::move(each));
}

// Along which replicas share what they share.
absl::string_view SharingAxis(const Mesh& mesh) {
  return mesh.degree(kShardAxis) > 1 ? kShardAxis : kDataAxis;
}

// Parameters of which not all values are here.
std::set<const void*> TensorsInShares(const MeshModel& model) {
  std::set<const void*> tensors;
  for (const TrainedStage* stage : model.AllStages()) {
    for (const FlatBuffer* buffer : stage->parameters().sharded()) {
      if (buffer->value_memory().has_whole()) continue;
      for (const FlatSlot& slot : buffer->slots()) {
        tensors.insert(slot.parameter.unsafeGetTensorImpl());
      }
    }
  }
  return tensors;
}

// What replicas share beside the optimizer's state.
const char* AlsoShared(Sharding sharding) {
  if (sharding == Sharding::kParameters) {
    return ", as are gradients and parameters";
  }
  return sharding == Sharding::kGradients ? ", as are gradients" : "";
}

}  // namespace

// Parameters of which ranks have shares stand there without values.
NamedTensors MeshState::Parameters() const {
  NamedTensors all = NamedParameters(model().executor->stages());
  const std::set<const void*> in_shares = TensorsInShares(model());
  if (in_shares.empty()) return all;
  for (auto& each : all) {
    at::Tensor& parameter = each.second;
    if (in_shares.count(parameter.unsafeGetTensorImpl()) == 0) continue;
    parameter =
        at::empty_like(parameter.detach(), at::TensorOptions(c10::kMeta));
  }
  return all;
}

NamedTensors MeshState::Buffers() const {
  return NamedBuffers(model().executor->stages());
}

absl::StatusOr<std::vector<TensorInfo>> MeshState::WholeTensors() const {
  TANDEM_ASSIGN_OR_RETURN(std::vector<TensorInfo> infos,
                          TrainedState::WholeTensors());
  TANDEM_ASSIGN_OR_RETURN(const ShardsByName shards, Shards());
  for (TensorInfo& each : infos) {
    const auto shard = shards.find(each.name);
    if (shard != shards.end()) each.sizes = shard->second.sizes;
  }
  return infos;
}

NamedTensors MeshState::AlikeParameters() const {
  NamedTensors alike;
  for (size_t i = 0; i < model().stages.size(); ++i) {
    if (model().stages[i] == nullptr) continue;
    const LayerList& layers = model().executor->stages()[i]->layers();
    for (auto& each :
         model().stages[i]->parameters().SelectAlike(NamedParameters(layers))) {
      alike.push_back(std::move(each));
    }
  }
  return alike;
}

std::map<std::string, int64_t> MeshState::OptimizerGroups() const {
  std::map<std::string, int64_t> groups;
  for (const TrainedStage* stage : model().AllStages()) {
    for (const FlatBuffer* buffer : stage->parameters().own()) {
      for (const FlatSlot& slot : buffer->slots()) {
        groups[slot.name] = buffer->group();
      }
    }
  }
  return groups;
}

std::map<std::string, std::string> MeshState::TiedCopies() const {
  std::map<std::string, std::string> copies;
  for (const TrainedStage* stage : model().AllStages()) {
    const auto& mine = stage->parameters().first_of_copy();
    copies.insert(mine.begin(), mine.end());
  }
  return copies;
}

NamedTensors MeshState::OptimizerState() const {
  NamedTensors state;
  for (int i : model().OwnStages()) {
    Append(model().stage(i).OptimizerState(), &state);
    for (const auto& part : parts()) Append(part->State(i), &state);
  }
  return state;
}

NamedTensors MeshState::OptimizerStateOfCopies() const {
  std::set<std::string> here;
  for (const auto& each : OptimizerState()) here.insert(each.first);
  NamedTensors of_copies;
  for (const int i : model().OwnStages()) {
    TrainedStage& stage = model().stage(i);
    NamedTensors all = stage.update().optimizer().State();
    for (const auto& part : parts()) Append(part->State(i), &all);
    for (const auto& [name, tensor] : all) {
      const std::string parameter = ParameterName(name);
      const auto& firsts = stage.parameters().first_of_copy();
      const auto first = firsts.find(parameter);
      if (first == firsts.end()) continue;
      std::string renamed =
          absl::StrCat(first->second, name.substr(parameter.size()));
      if (!here.insert(renamed).second) continue;
      of_copies.emplace_back(std::move(renamed), tensor);
    }
  }
  return of_copies;
}

// This rank's stages, which need not do alike.
std::string MeshState::DescribeSharding() const {
  std::vector<std::string> texts;
  for (const TrainedStage* stage : model().AllStages()) {
    const ShardingChoice& choice = stage->sharding();
    std::string text = "whole on each replica";
    if (choice.shards) {
      const int replicas = model().groups.replicas();
      const int sharers = stage->sharers()->size();
      text = absl::StrCat(
          "shared by ", replicas, " replicas",
          sharers < replicas ? absl::StrCat(" in groups of ", sharers) : "",
          AlsoShared(model().options.shard));
    }
    absl::StrAppend(&text, " (", choice.reason, ")");
    if (!absl::c_linear_search(texts, text)) texts.push_back(std::move(text));
  }
  return absl::StrJoin(texts, "; ");
}

// OptimizerState, but whole: on the first replica. Collective over replicas.
absl::StatusOr<NamedTensors> MeshState::GatherOptimizerState() const {
  NamedTensors state;
  for (int i : model().OwnStages()) {
    TANDEM_ASSIGN_OR_RETURN(NamedTensors optimizers,
                            model().stage(i).GatherOptimizerState());
    Append(std::move(optimizers), &state);
    for (const auto& part : parts()) {
      TANDEM_ASSIGN_OR_RETURN(NamedTensors more, part->GatherState(i));
      Append(std::move(more), &state);
    }
  }
  return state;
}

// One of the ranks that have a tensor alike will do.
absl::Status MeshState::StreamState(const StateParts& parts, TensorSink& sink) {
  const auto stream = [&]() -> absl::Status {
    // What streams have left undone is nothing to be saved.
    TANDEM_RETURN_IF_ERROR(Synchronize());
    NamedTensors optimizer;
    if (parts.optimizer) {
      TANDEM_ASSIGN_OR_RETURN(optimizer, GatherOptimizerState());
    }
    FullySharded::ParameterCopies copies;
    if (parts.parameters) {
      TANDEM_ASSIGN_OR_RETURN(copies,
                              CopySharded(model().groups.replica() == 0));
    }
    NamedTensors values;
    if (parts.parameters) {
      values = NamedParameters(model().executor->stages());
      for (auto& each : values) {
        const auto copy = copies.find(each.second.unsafeGetTensorImpl());
        if (copy != copies.end()) each.second = copy->second;
      }
    }
    if (parts.buffers) Append(Buffers(), &values);
    TANDEM_ASSIGN_OR_RETURN(const NamedTensors state,
                            CheckpointTensors(values, optimizer));
    if (model().groups.world() == nullptr) return StreamTensors(state, sink);
    TANDEM_ASSIGN_OR_RETURN(const ShardsByName shards, Shards());
    return StreamToRank0(OwnedState(state, Place(shards)),
                         *model().groups.world(), sink);
  };
  const absl::Status status = stream();
  if (!status.ok()) Abort(status);
  return status;
}

absl::StatusOr<FullySharded::ParameterCopies> MeshState::CopySharded(
    bool wanted) {
  FullySharded::ParameterCopies all;
  for (const int stage : model().OwnStages()) {
    FullySharded* const sharded = model().stage(stage).fully_sharded();
    if (sharded == nullptr) continue;
    TANDEM_ASSIGN_OR_RETURN(FullySharded::ParameterCopies copies,
                            sharded->CopyParameters(wanted));
    all.merge(copies);
  }
  return all;
}

absl::Status MeshState::OnSharded(absl::Status (FullySharded::*work)()) {
  return model().OnStages([&](int stage) {
    FullySharded* const sharded = model().stage(stage).fully_sharded();
    return sharded == nullptr ? absl::OkStatus() : (sharded->*work)();
  });
}

absl::StatusOr<StatePart> MeshState::PartToSave() {
  const absl::Status ended = Synchronize();
  if (!ended.ok()) {
    Abort(ended);
    return ended;
  }
  // Parameters of which ranks have shares are written by all of these.
  const NamedTensors parameters = NamedParameters(model().executor->stages());
  const std::set<const void*> in_shares = TensorsInShares(model());
  NamedTensors whole = Buffers();
  for (const auto& each : parameters) {
    if (in_shares.count(each.second.unsafeGetTensorImpl()) > 0) continue;
    whole.push_back(each);
  }
  TANDEM_ASSIGN_OR_RETURN(const NamedTensors state,
                          CheckpointTensors(whole, OptimizerState()));
  TANDEM_ASSIGN_OR_RETURN(const ShardsByName shards, Shards());
  StatePart part = OwnedState(state, Place(shards));
  const auto add = [&](const StatePart& share, SharedNames names) {
    StatePart owned =
        OwnedShare(share, names, {SharingAxis(model().mesh)}, Place(shards));
    Append(std::move(owned.tensors), &part.tensors);
    part.slices.insert(owned.slices.begin(), owned.slices.end());
  };
  for (const int i : model().OwnStages()) {
    const TrainedStage& stage = model().stage(i);
    add(stage.SharedParameters(parameters), SharedNames::kParameters);
    add(stage.SharedOptimizerState(), SharedNames::kStates);
    for (const auto& each : parts()) {
      add(each->SharedState(i), SharedNames::kStates);
    }
  }
  return part;
}

absl::StatusOr<StatePart> MeshState::GradientPart() const {
  TANDEM_ASSIGN_OR_RETURN(const ShardsByName shards, Shards());
  return OwnedState(Gradients(), Place(shards));
}

absl::StatusOr<ShardsByName> MeshState::Shards() const {
  ShardsByName all;
  for (size_t i = 0; i < model().stages.size(); ++i) {
    const TrainedStage* const stage = model().stages[i].get();
    if (stage == nullptr) continue;
    // Copies of a tied weight have its first member's traits.
    TraitsByName traits = model().traits;
    for (const auto& [copy, first] : stage->parameters().first_of_copy()) {
      traits[copy] = EffectiveTraits(model().traits, first);
    }
    TANDEM_ASSIGN_OR_RETURN(
        const ShardsByName shards,
        FindShards(NamedParameters(model().executor->stages()[i]->layers()),
                   traits, model().mesh, model().rank()));
    all.insert(shards.begin(), shards.end());
  }
  return all;
}

OwnerPlace MeshState::Place(const ShardsByName& shards) const {
  return {model().mesh, model().rank(), shards};
}

std::vector<std::pair<std::string, double>> MeshState::Measurements() const {
  std::vector<std::pair<std::string, double>> all;
  for (const auto& part : parts()) {
    for (auto& each : part->Measurements()) all.push_back(std::move(each));
  }
  return all;
}

absl::StatusOr<std::string> MeshState::DescribeTimes() {
  std::string all;
  for (const auto& part : parts()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string text, part->DescribeTimes());
    all += text;
  }
  return all;
}

absl::Status MeshState::Synchronize() const {
  TANDEM_RETURN_IF_ERROR(model().groups.Synchronize());
  return SynchronizeStep();
}

absl::Status MeshState::SynchronizeStep() const {
  TANDEM_RETURN_IF_ERROR(model().executor->Synchronize());
  TANDEM_RETURN_IF_ERROR(model().groups.SynchronizeReplicas());
  for (const auto& part : parts()) TANDEM_RETURN_IF_ERROR(part->Synchronize());
  return absl::OkStatus();
}

void MeshState::Abort(const absl::Status& reason) {
  model().groups.Abort(reason);
  model().executor->Abort(reason);
  for (const auto& part : parts()) part->Abort(reason);
}

}  // namespace tandem
