// What steps came to: read from devices, and summed over ranks.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "parallel/step/loss_sums.h"
#include "parallel/step/score_numbers.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {

absl::Status MeshStrategyImpl::ReadPending() {
  std::vector<at::Tensor> numbers;
  for (const PendingStep& step : pending_) {
    for (const auto& part : parts_) part->AddNumbers(step, &numbers);
  }
  std::vector<double> values;
  if (!numbers.empty()) {
    TANDEM_ASSIGN_OR_RETURN(values, model_->executor->Read(numbers));
  }
  const double* next = values.data();
  for (PendingStep& step : pending_) {
    StepScore score;
    for (const auto& part : parts_) {
      TANDEM_RETURN_IF_ERROR(part->Read(step, next, &score));
    }
    last_ = score;
    scores_.push_back(std::move(score));
  }
  pending_.clear();
  for (const auto& part : parts_) part->AfterReading();
  return absl::OkStatus();
}

// A failure is that of what was there first: what waits on streams for the same
// ranks was before the loss.
absl::Status MeshStrategyImpl::ReadOrAbort() {
  absl::Status read = ReadPending();
  if (read.ok()) return read;
  const absl::Status parts = SynchronizeParts();
  if (!parts.ok()) read = parts;
  Abort(read);
  return read;
}

absl::StatusOr<Score> MeshStrategyImpl::ReadLast() {
  TANDEM_RETURN_IF_ERROR(ReadOrAbort());
  const Score score = scores_.back().score;
  scores_.pop_back();
  return score;
}

absl::StatusOr<std::vector<StepScore>> MeshStrategyImpl::TakeScores() {
  TANDEM_RETURN_IF_ERROR(ReadOrAbort());
  return std::exchange(scores_, {});
}

absl::Status MeshStrategyImpl::AddEvaluationSums() {
  std::vector<at::Tensor> numbers;
  const std::vector<AuxiliaryLoss> sums =
      model_->executor->TakeAuxiliaryLosses();
  for (const AuxiliaryLoss& each : sums) numbers.push_back(each.loss);
  if (numbers.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> values,
                          model_->executor->Read(numbers));
  for (size_t i = 0; i < sums.size(); ++i) {
    evaluation_sums_[sums[i].name] += values[i];
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, double>>
MeshStrategyImpl::TakeEvaluationSums() {
  std::vector<LossSums::Part> mine;
  for (const auto& [name, sum] : std::exchange(evaluation_sums_, {})) {
    mine.push_back({name, /*microbatch=*/0, sum});
  }
  LossSums all;  // names are agreed on anew
  TANDEM_RETURN_IF_ERROR(
      all.Sum(mine, /*microbatches=*/1, model_->groups.world()));
  return all.sums();
}

absl::StatusOr<Score> MeshStrategyImpl::Sum(const Score& score) {
  return SumOver(model_->groups.world(), score, [] { return "the loss"; });
}

}  // namespace tandem
