#include "parallel/strategy/strategy.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/precision/loss_scale.h"
#include "parallel/step/step_score.h"

namespace tandem {

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

}  // namespace tandem
