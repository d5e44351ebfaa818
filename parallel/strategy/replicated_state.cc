// What a replica holds and how it scores, beside training.

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/layer_list.h"
#include "parallel/ddp/logging.h"
#include "parallel/ddp/model_state.h"
#include "parallel/strategy/replicated.h"

namespace tandem {

absl::StatusOr<Score> Replicated::Evaluate(const Batch& batch) {
  if (batch.size == 0) return Score{};
  SetTraining(ddp_->module(), false);
  at::NoGradGuard no_grad;
  absl::StatusOr<Score> score = Judge(batch);
  return score.ok() ? score : Annotate(score.status(), "evaluation");
}

absl::StatusOr<Score> Replicated::Judge(const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(const Outputs outputs, Forward(batch));
  TANDEM_ASSIGN_OR_RETURN(const LossArguments arguments,
                          Arguments(outputs, batch));
  TANDEM_ASSIGN_OR_RETURN(const LossResult result, Loss(arguments));
  return SumOf({{result.score, result.sums}});
}

absl::StatusOr<Score> Replicated::Sum(const Score& score) {
  TANDEM_RETURN_IF_ERROR(StartSumOfScores(score));
  return SumOfScores();
}

NamedTensors Replicated::OptimizerState() const { return update_->State(); }

std::vector<std::pair<std::string, double>> Replicated::Measurements() const {
  if (data_.size() == 1) return {};
  return ToList(ddp_->logging_data());
}

// Replicas are alike: the first one's will do.
absl::Status Replicated::StreamState(const StateParts& parts,
                                     TensorSink& sink) {
  if (data_.rank() != 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const NamedTensors state, OwnState(parts));
  return StreamTensors(state, sink);
}

NamedTensors Replicated::Model() const {
  NamedTensors model = parameters_;
  model.insert(model.end(), buffers_.begin(), buffers_.end());
  return model;
}

absl::Status Replicated::LoadModelState(const StoredTensors& state) {
  return CopyModelState(state, Model());
}

absl::Status Replicated::LoadOptimizerState(const StoredTensors& state) {
  return update_->LoadState(state);
}

absl::Status Replicated::CheckModelState(const StoredTensors& state) const {
  return tandem::CheckModelState(state, Model());
}

absl::Status Replicated::CheckOptimizerState(const StoredTensors& state) const {
  return update_->CheckState(state);
}

}  // namespace tandem
