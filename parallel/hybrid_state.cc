// What a pipeline holds and how it scores, beside training.

#include <ATen/ops/cat.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "parallel/gathered_tensors.h"
#include "parallel/hybrid.h"
#include "parallel/microbatches.h"
#include "parallel/model_state.h"

namespace tandem {
namespace {

std::string ParameterOf(const std::string& state_name) {
  return state_name.substr(0, state_name.rfind('.'));
}

std::set<std::string> NamesOf(const NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& each : tensors) names.insert(each.first);
  return names;
}

}  // namespace

NamedTensors Hybrid::Parameters() const {
  return NamedParameters(executor_->stages());
}

NamedTensors Hybrid::Buffers() const {
  return NamedBuffers(executor_->stages());
}

NamedTensors Hybrid::OptimizerState() const {
  NamedTensors state;
  for (const TrainedStage* stage : AllStages()) {
    for (auto& each : stage->OptimizerState()) state.push_back(std::move(each));
  }
  return state;
}

absl::StatusOr<WholeState> Hybrid::GatherState() {
  WholeState state = {Parameters(), Buffers(), OptimizerState()};
  if (groups_.pipe() == nullptr) return state;
  for (NamedTensors* part :
       {&state.parameters, &state.buffers, &state.optimizer}) {
    TANDEM_ASSIGN_OR_RETURN(*part, GatherOnRank0(*part, *groups_.pipe()));
  }
  return state;
}

absl::Status Hybrid::LoadModelState(const NamedTensors& state) {
  NamedTensors model = Parameters();
  for (auto& each : Buffers()) model.push_back(std::move(each));
  if (groups_.pipe() == nullptr) return CopyModelState(state, model);
  const std::set<std::string> mine = NamesOf(model);
  NamedTensors wanted;
  for (const auto& each : state) {
    if (mine.count(each.first) > 0) wanted.push_back(each);
  }
  return CopyModelState(wanted, model);
}

// State of parameters that no stage has is for another rank, or for nobody: the
// first stage refuses that.
absl::Status Hybrid::LoadOptimizerState(const NamedTensors& state) {
  std::set<std::string> known = NamesOf(Parameters());
  std::vector<NamedTensors> wanted;
  const std::vector<TrainedStage*> stages = AllStages();
  for (const TrainedStage* stage : stages) {
    wanted.push_back(stage->StateOf(state));
  }
  if (groups_.pipe() == nullptr) {
    for (const auto& each : state) {
      if (known.count(ParameterOf(each.first)) == 0) {
        wanted.front().push_back(each);
      }
    }
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(stages[i]->CheckState(wanted[i]));
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(stages[i]->LoadState(wanted[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Inference> Hybrid::Infer(const Batch& batch,
                                        bool keeps_outputs) {
  SetTraining(executor_->stages(), false);
  const std::vector<int64_t> sizes =
      EvenSizes(batch.size, options_.schedule.microbatches);
  const absl::StatusOr<std::vector<Batch>> parts = SplitBatch(batch, sizes);
  absl::StatusOr<Inference> inference =
      parts.ok() ? executor_->Infer(*parts, keeps_outputs) : parts.status();
  if (!inference.ok()) Abort(inference.status());
  return inference;
}

absl::StatusOr<Score> Hybrid::Evaluate(const Batch& batch) {
  if (batch.size == 0) return Score{};
  const absl::StatusOr<Inference> inference =
      Infer(batch, /*keeps_outputs=*/false);
  if (!inference.ok()) return Annotate(inference.status(), "evaluation");
  return inference->score;
}

absl::StatusOr<at::Tensor> Hybrid::Forward(const Batch& batch) {
  if (batch.size == 0) {
    return absl::InvalidArgumentError("a batch needs at least one sample");
  }
  TANDEM_ASSIGN_OR_RETURN(const Inference inference,
                          Infer(batch, /*keeps_outputs=*/true));
  if (inference.outputs.empty()) return at::Tensor();
  return CatchTorchOr([&] { return at::cat(inference.outputs); });
}

}  // namespace tandem
