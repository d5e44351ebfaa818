#include "parallel/strategy/strategy.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/precision/loss_scale.h"
#include "parallel/step/step_score.h"

namespace tandem {

absl::StatusOr<WholeState> TrainedState::GatherState() {
  CollectedTensors parameters, buffers, optimizer;
  TANDEM_RETURN_IF_ERROR(StreamState({true, false, false}, parameters));
  TANDEM_RETURN_IF_ERROR(StreamState({false, true, false}, buffers));
  TANDEM_RETURN_IF_ERROR(StreamState({false, false, true}, optimizer));
  WholeState state = {
      std::move(parameters.tensors), std::move(buffers.tensors), {}};
  for (auto& [name, tensor] : optimizer.tensors) {
    state.optimizer.emplace_back(OptimizerStateName(name), std::move(tensor));
  }
  return state;
}

absl::StatusOr<std::vector<TensorInfo>> TrainedState::WholeTensors() const {
  std::vector<TensorInfo> infos;
  for (const NamedTensors& some : {Parameters(), Buffers()}) {
    for (const auto& [name, tensor] : some) {
      infos.push_back(MakeTensorInfo(name, tensor));
    }
  }
  return infos;
}

Strategy::Strategy() = default;
Strategy::~Strategy() = default;

// For strategies that know each step's score.
absl::Status Strategy::SubmitStep(const Batch& batch, double learning_rate) {
  TANDEM_ASSIGN_OR_RETURN(const Score score, TrainStep(batch, learning_rate));
  scores_.push_back({score, AuxiliaryLosses(), NamedSums()});
  if (const LossScale* scale = loss_scale()) {
    scores_.back().scaled = ScaledStep::After(*scale);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StepScore>> Strategy::TakeScores() {
  return std::exchange(scores_, {});
}

NamedTensors Strategy::Gradients() const {
  NamedTensors gradients;
  for (const auto& [name, parameter] : Parameters()) {
    if (!parameter.grad().defined()) continue;
    gradients.emplace_back(name, parameter.grad());
  }
  return gradients;
}

absl::StatusOr<StatePart> Strategy::GradientPart() const {
  return StatePart{Gradients(), {}};
}

absl::StatusOr<Score> Strategy::EvaluateBatches(NextBatch next) {
  Score all;
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const std::optional<Batch> batch, next());
    if (!batch.has_value()) return all;
    TANDEM_ASSIGN_OR_RETURN(const Score score, Evaluate(*batch));
    all += score;
  }
}

}  // namespace tandem
