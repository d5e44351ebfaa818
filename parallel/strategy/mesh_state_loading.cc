// Loading of a mesh strategy's state: each rank takes its part of a whole
// model's.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "parallel/ddp/model_state.h"
#include "parallel/optim/optimizer.h"
#include "parallel/pipeline/model.h"
#include "parallel/strategy/mesh_state.h"
#include "parallel/strategy/owned_state.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

// Parameters and buffers of this rank's stages.
NamedTensors ModelValues(const MeshModel& model) {
  NamedTensors all = NamedParameters(model.executor->stages());
  for (auto& each : NamedBuffers(model.executor->stages())) {
    all.push_back(std::move(each));
  }
  return all;
}

// Picks what is this rank's from a whole model's state, and what nobody has, so
// that it is refused.
StoredTensors OwnOrNobodys(const StoredTensors& state, const MeshModel& model) {
  std::set<std::string> mine;
  for (const auto& each : ModelValues(model)) mine.insert(each.first);
  StoredTensors wanted;
  for (const StoredTensor& each : state) {
    const std::string& name = each.info.name;
    const bool elsewhere =
        mine.count(name) == 0 && (model.parameter_names.count(name) > 0 ||
                                  model.buffer_names.count(name) > 0);
    if (!elsewhere) wanted.Add(each);
  }
  for (const std::string& each : state.kept()) wanted.Keep(each);
  return wanted;
}

}  // namespace

absl::StatusOr<StoredTensors> MeshState::ModelTensors(
    const StoredTensors& state) const {
  TANDEM_ASSIGN_OR_RETURN(const ShardsByName shards, Shards());
  return ShardsToLoad(OwnOrNobodys(state, model()), shards,
                      [](const std::string& name) { return name; });
}

absl::Status MeshState::AddKeptShares(StoredTensors& state) {
  if (state.kept().empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const FullySharded::ParameterCopies copies,
                          CopySharded(/*wanted=*/true));
  for (const auto& [name, parameter] :
       NamedParameters(model().executor->stages())) {
    const auto copy = copies.find(parameter.unsafeGetTensorImpl());
    if (copy == copies.end() || state.kept().count(name) == 0) continue;
    for (const StoredTensor& each : StoredTensors({{name, copy->second}})) {
      state.Add(each);
    }
  }
  return absl::OkStatus();
}

absl::Status MeshState::CheckModelState(const StoredTensors& state) const {
  TANDEM_ASSIGN_OR_RETURN(const StoredTensors mine, ModelTensors(state));
  return tandem::CheckModelState(mine, ModelValues(model()));
}

absl::Status MeshState::LoadModelState(const StoredTensors& state) {
  // Every value is replaced, or none.
  TANDEM_RETURN_IF_ERROR(CheckModelState(state));
  TANDEM_ASSIGN_OR_RETURN(StoredTensors mine, ModelTensors(state));
  TANDEM_RETURN_IF_ERROR(AddKeptShares(mine));
  TANDEM_RETURN_IF_ERROR(OnSharded(&FullySharded::BeginReplacing));
  const absl::Status copied = CopyModelState(mine, ModelValues(model()));
  TANDEM_RETURN_IF_ERROR(OnSharded(copied.ok() ? &FullySharded::EndReplacing
                                               : &FullySharded::Reshard));
  TANDEM_RETURN_IF_ERROR(copied);
  for (const auto& part : parts()) part->AfterLoad();
  return absl::OkStatus();
}

// State of parameters that no rank has is given to the first stage, which
// refuses it.
absl::StatusOr<std::vector<StoredTensors>> MeshState::OptimizerStates(
    const StoredTensors& state) const {
  TANDEM_ASSIGN_OR_RETURN(const ShardsByName shards, Shards());
  std::vector<StoredTensors> wanted;
  for (int i : model().OwnStages()) {
    TANDEM_ASSIGN_OR_RETURN(
        wanted.emplace_back(),
        ShardsToLoad(model().stage(i).parameters().SelectState(state), shards,
                     ParameterName));
  }
  for (const StoredTensor& each : state) {
    if (model().parameter_names.count(ParameterName(each.info.name)) == 0) {
      wanted.front().Add(each);
    }
  }
  return wanted;
}

StoredTensors MeshState::WithoutParts(const StoredTensors& state) const {
  StoredTensors rest;
  for (const StoredTensor& each : state) {
    const bool is_a_parts = absl::c_any_of(parts(), [&](const auto& part) {
      return part->HasState(each.info.name);
    });
    if (!is_a_parts) rest.Add(each);
  }
  return rest;
}

absl::Status MeshState::CheckOptimizerState(const StoredTensors& state) const {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<StoredTensors> wanted,
                          OptimizerStates(state));
  const std::vector<int> stages = model().OwnStages();
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const auto& part : parts()) {
      TANDEM_RETURN_IF_ERROR(part->CheckState(stages[i], wanted[i]));
    }
    const Optimizer& optimizer = model().stage(stages[i]).update().optimizer();
    TANDEM_RETURN_IF_ERROR(optimizer.CheckState(WithoutParts(wanted[i])));
  }
  return absl::OkStatus();
}

absl::Status MeshState::LoadOptimizerState(const StoredTensors& state) {
  TANDEM_RETURN_IF_ERROR(CheckOptimizerState(state));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<StoredTensors> wanted,
                          OptimizerStates(state));
  const std::vector<int> stages = model().OwnStages();
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const auto& part : parts()) {
      TANDEM_RETURN_IF_ERROR(part->LoadState(stages[i], wanted[i]));
    }
    Optimizer& optimizer = model().stage(stages[i]).update().optimizer();
    TANDEM_RETURN_IF_ERROR(optimizer.LoadState(WithoutParts(wanted[i])));
  }
  return absl::OkStatus();
}

}  // namespace tandem
