// What a pipeline holds and how it scores, beside training.

#include <ATen/ops/cat.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/model/layer_list.h"
#include "parallel/ddp/model_state.h"
#include "parallel/optim/grouped_optimizer.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/pipeline/model.h"
#include "parallel/strategy/gathered_tensors.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {
namespace {

std::set<std::string> NamesOf(const NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& each : tensors) names.insert(each.first);
  return names;
}

void Append(NamedTensors more, NamedTensors* all) {
  for (auto& each : more) all->push_back(std::move(each));
}

}  // namespace

NamedTensors MeshStrategyImpl::Parameters() const {
  return NamedParameters(model_->executor->stages());
}

NamedTensors MeshStrategyImpl::Buffers() const {
  return NamedBuffers(model_->executor->stages());
}

NamedTensors MeshStrategyImpl::AlikeParameters() const {
  NamedTensors alike;
  for (size_t i = 0; i < model_->stages.size(); ++i) {
    if (model_->stages[i] == nullptr) continue;
    const LayerList& layers = model_->executor->stages()[i]->layers();
    for (auto& each : model_->stages[i]->AlikeOf(NamedParameters(layers))) {
      alike.push_back(std::move(each));
    }
  }
  return alike;
}

std::map<std::string, int64_t> MeshStrategyImpl::OptimizerGroups() const {
  std::map<std::string, int64_t> groups;
  for (const TrainedStage* stage : model_->AllStages()) {
    for (const FlatBuffer* buffer : stage->own()) {
      for (const FlatSlot& slot : buffer->slots()) {
        groups[slot.name] = buffer->group();
      }
    }
  }
  return groups;
}

std::map<std::string, std::string> MeshStrategyImpl::TiedCopies() const {
  std::map<std::string, std::string> copies;
  for (const TrainedStage* stage : model_->AllStages()) {
    copies.insert(stage->first_of_copy().begin(), stage->first_of_copy().end());
  }
  return copies;
}

NamedTensors MeshStrategyImpl::OptimizerState() const {
  NamedTensors state;
  for (int i : model_->OwnStages()) {
    Append(model_->stage(i).OptimizerState(), &state);
    for (const auto& part : parts_) Append(part->State(i), &state);
  }
  return state;
}

// This rank's stages, which need not do alike.
std::string MeshStrategyImpl::DescribeSharding() const {
  std::vector<std::string> texts;
  for (const TrainedStage* stage : model_->AllStages()) {
    const ShardingChoice& choice = stage->sharding();
    std::string text =
        choice.shards
            ? absl::StrCat("shared by ", model_->groups.replicas(), " replicas")
            : std::string("whole on each replica");
    absl::StrAppend(&text, " (", choice.reason, ")");
    if (!absl::c_linear_search(texts, text)) texts.push_back(std::move(text));
  }
  return absl::StrJoin(texts, "; ");
}

// As OptimizerState, but whole: on the first replica. Collective over replicas.
absl::StatusOr<NamedTensors> MeshStrategyImpl::GatherOptimizerState() const {
  NamedTensors state;
  for (int i : model_->OwnStages()) {
    TANDEM_ASSIGN_OR_RETURN(NamedTensors optimizers,
                            model_->stage(i).GatherOptimizerState());
    Append(std::move(optimizers), &state);
    for (const auto& part : parts_) Append(part->State(i), &state);
  }
  return state;
}

// Replicas are alike: the first one's will do, and what they share of it.
absl::Status MeshStrategyImpl::StreamState(const StateParts& parts,
                                           TensorSink& sink) {
  const auto stream = [&]() -> absl::Status {
    // What streams have left undone is nothing to be saved.
    TANDEM_RETURN_IF_ERROR(Synchronize());
    NamedTensors optimizer;
    if (parts.optimizer) {
      TANDEM_ASSIGN_OR_RETURN(optimizer, GatherOptimizerState());
    }
    if (model_->groups.replica() != 0) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(const NamedTensors state,
                            OwnState(parts, std::move(optimizer)));
    if (model_->groups.pipe() == nullptr) return StreamTensors(state, sink);
    return StreamToRank0(state, *model_->groups.pipe(), sink);
  };
  const absl::Status status = stream();
  if (!status.ok()) Abort(status);
  return status;
}

absl::StatusOr<StatePart> MeshStrategyImpl::PartToSave() {
  const absl::Status ended = Synchronize();
  if (!ended.ok()) {
    Abort(ended);
    return ended;
  }
  StatePart part;
  if (model_->groups.replica() == 0) {
    TANDEM_ASSIGN_OR_RETURN(part.tensors,
                            OwnState({true, true, true}, OptimizerState()));
  }
  for (const TrainedStage* stage : model_->AllStages()) {
    const StatePart shared = stage->SharedOptimizerState();
    for (const auto& [name, tensor] : shared.tensors) {
      part.tensors.emplace_back(CheckpointNameOfState(name), tensor);
    }
    for (const auto& [name, slice] : shared.slices) {
      part.slices[CheckpointNameOfState(name)] = slice;
    }
  }
  return part;
}

NamedTensors MeshStrategyImpl::Model() const {
  NamedTensors model = Parameters();
  for (auto& each : Buffers()) model.push_back(std::move(each));
  return model;
}

// And what nobody has, so that it is refused.
StoredTensors MeshStrategyImpl::ModelStateOf(const StoredTensors& state) const {
  const std::set<std::string> mine = NamesOf(Model());
  StoredTensors wanted;
  for (const StoredTensor& each : state) {
    const std::string& name = each.info.name;
    const bool elsewhere =
        mine.count(name) == 0 && (model_->parameter_names.count(name) > 0 ||
                                  model_->buffer_names.count(name) > 0);
    if (!elsewhere) wanted.Add(each);
  }
  return wanted;
}

absl::Status MeshStrategyImpl::CheckModelState(
    const StoredTensors& state) const {
  return tandem::CheckModelState(ModelStateOf(state), Model());
}

absl::Status MeshStrategyImpl::LoadModelState(const StoredTensors& state) {
  TANDEM_RETURN_IF_ERROR(CopyModelState(ModelStateOf(state), Model()));
  for (const auto& part : parts_) part->AfterLoad();
  return absl::OkStatus();
}

// In the order of OwnStages. State of parameters that no rank has is given to
// the first, which refuses it.
std::vector<StoredTensors> MeshStrategyImpl::OptimizerStateOf(
    const StoredTensors& state) const {
  std::vector<StoredTensors> wanted;
  for (int i : model_->OwnStages()) {
    wanted.push_back(model_->stage(i).StateOf(state));
  }
  for (const StoredTensor& each : state) {
    if (model_->parameter_names.count(ParameterOf(each.info.name)) == 0) {
      wanted.front().Add(each);
    }
  }
  return wanted;
}

StoredTensors MeshStrategyImpl::WithoutParts(const StoredTensors& state) const {
  StoredTensors rest;
  for (const StoredTensor& each : state) {
    const bool is_a_parts = absl::c_any_of(parts_, [&](const auto& part) {
      return part->HasState(each.info.name);
    });
    if (!is_a_parts) rest.Add(each);
  }
  return rest;
}

absl::Status MeshStrategyImpl::CheckOptimizerState(
    const StoredTensors& state) const {
  const std::vector<StoredTensors> wanted = OptimizerStateOf(state);
  const std::vector<int> stages = model_->OwnStages();
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const auto& part : parts_) {
      TANDEM_RETURN_IF_ERROR(part->CheckState(stages[i], wanted[i]));
    }
    TANDEM_RETURN_IF_ERROR(
        model_->stage(stages[i]).CheckState(WithoutParts(wanted[i])));
  }
  return absl::OkStatus();
}

absl::Status MeshStrategyImpl::LoadOptimizerState(const StoredTensors& state) {
  TANDEM_RETURN_IF_ERROR(CheckOptimizerState(state));
  const std::vector<StoredTensors> wanted = OptimizerStateOf(state);
  const std::vector<int> stages = model_->OwnStages();
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const auto& part : parts_) {
      TANDEM_RETURN_IF_ERROR(part->LoadState(stages[i], wanted[i]));
    }
    TANDEM_RETURN_IF_ERROR(
        model_->stage(stages[i]).LoadState(WithoutParts(wanted[i])));
  }
  return absl::OkStatus();
}

absl::StatusOr<Inference> MeshStrategyImpl::Infer(const Batch& batch,
                                                  bool keeps_outputs) {
  model_->SetTraining(false);
  const std::vector<int64_t> sizes =
      EvenSizes(batch.size, model_->options.schedule.microbatches);
  const absl::StatusOr<std::vector<Batch>> parts = SplitBatch(batch, sizes);
  absl::StatusOr<Inference> inference =
      parts.ok() ? model_->executor->Infer(*parts, keeps_outputs)
                 : parts.status();
  if (inference.ok()) {
    const absl::Status ended = Synchronize();
    if (!ended.ok()) inference = ended;
  }
  model_->SetTraining(true);  // layers may be others', too
  if (!inference.ok()) Abort(inference.status());
  return inference;
}

absl::StatusOr<Score> MeshStrategyImpl::Evaluate(const Batch& batch) {
  if (batch.size == 0) return Score{};
  const absl::StatusOr<Inference> inference =
      Infer(batch, /*keeps_outputs=*/false);
  absl::Status done = inference.status();
  if (done.ok()) {
    done = AddEvaluationSums();
    if (!done.ok()) Abort(done);
  }
  if (!done.ok()) return Annotate(done, "evaluation");
  return inference->score;
}

absl::StatusOr<at::Tensor> MeshStrategyImpl::Forward(const Batch& batch) {
  if (batch.size == 0) {
    return absl::InvalidArgumentError("a batch needs at least one sample");
  }
  TANDEM_ASSIGN_OR_RETURN(const Inference inference,
                          Infer(batch, /*keeps_outputs=*/true));
  if (inference.outputs.empty()) return at::Tensor();
  return CatchTorchOr([&] { return at::cat(inference.outputs); });
}

}  // namespace tandem
