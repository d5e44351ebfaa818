// What steps came to: read from devices, and summed over ranks.

#include <ATen/ops/empty.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/flight/purpose.h"
#include "core/instrument/trace.h"
#include "parallel/step/ordered_sums.h"
#include "parallel/step/score_numbers.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {
namespace {

absl::StatusOr<Score> SumWithin(Communicator* group, const Score& score,
                                const CollectivePurpose& purpose) {
  if (group == nullptr) return score;
  const at::Tensor sums = at::empty({kScoreNumbers}, at::kDouble);
  ToNumbers(score, sums.mutable_data_ptr<double>());
  TANDEM_RETURN_IF_ERROR(group->AllReduceSum(sums, purpose));
  return ScoreOf(sums.const_data_ptr<double>());
}

// What lies on devices, in the order in which SumStep takes it.
void AddNumbers(const PendingStep& step, const StepPartList& parts,
                std::vector<at::Tensor>* numbers) {
  for (const PendingStep::Part& each : step.parts) {
    numbers->push_back(each.loss);
  }
  for (const DeferredScore& each : step.scores) {
    if (each.sums.defined()) numbers->push_back(each.sums);
  }
  for (const auto& part : parts) part->AddNumbers(step, numbers);
}

}  // namespace

PendingStep MeshStrategyImpl::StepToRead(const StepContext& context) const {
  const int64_t count = model_->options.schedule.microbatches;
  PendingStep step;
  step.number = step_ + 1;
  step.alike = context.ends_alike;
  step.scores = model_->executor->scores();
  step.times = {model_->executor->moments(), context.samples,
                context.microbatches == count};
  // A pass's weight is its share of the step's samples, but for what makes a
  // mean over replicas of it.
  const double share = model_->options.reproducible || !step.alike
                           ? 1
                           : 1.0 / model_->groups.replicas();
  for (AuxiliaryLoss& each : model_->executor->TakeAuxiliaryLosses()) {
    step.parts.push_back({std::move(each.name),
                          model_->groups.replica() * count + each.microbatch,
                          each.is_sum ? 1 : each.weight * share,
                          std::move(each.loss), each.is_sum});
  }
  return step;
}

// Advances `numbers` behind the step's.
absl::StatusOr<StepScore> MeshStrategyImpl::SumStep(const PendingStep& step,
                                                    const double*& numbers) {
  Communicator* const group =
      step.alike ? model_->groups.world() : model_->groups.pipe();
  std::vector<LossSums::Part> losses, sums;
  for (const PendingStep::Part& each : step.parts) {
    (each.is_sum ? sums : losses)
        .push_back({each.name, each.microbatch, *numbers++ * each.factor});
  }
  const int64_t all =
      model_->groups.replicas() * model_->options.schedule.microbatches;
  TANDEM_RETURN_IF_ERROR(auxiliary_losses_.Sum(losses, all, group));
  TANDEM_RETURN_IF_ERROR(named_sums_.Sum(sums, all, group));
  std::vector<Score> mine;
  Score sum;
  for (const DeferredScore& each : step.scores) {
    mine.push_back(FullScore(each, numbers));
    sum += mine.back();
  }
  const CollectivePurpose purpose = [number = step.number] {
    return absl::StrCat("the loss of step ", number);
  };
  const FlightPurposeScope flight({"loss"});
  TANDEM_ASSIGN_OR_RETURN(const Score score,
                          model_->options.reproducible
                              ? SumInOrder(*model_, mine, purpose)
                              : SumWithin(group, sum, purpose));
  StepScore result{score, auxiliary_losses_.sums(), named_sums_.sums(),
                   std::nullopt, std::nullopt};
  for (const auto& part : parts_) {
    TANDEM_RETURN_IF_ERROR(part->Read(step, numbers, &result));
  }
  return result;
}

absl::Status MeshStrategyImpl::ReadPending() {
  std::vector<at::Tensor> numbers;
  for (const PendingStep& step : pending_) AddNumbers(step, parts_, &numbers);
  std::vector<double> values;
  if (!numbers.empty()) {
    TANDEM_ASSIGN_OR_RETURN(values, model_->executor->Read(numbers));
  }
  const double* next = values.data();
  for (PendingStep& step : pending_) {
    TANDEM_ASSIGN_OR_RETURN(StepScore score, SumStep(step, next));
    scores_.push_back(std::move(score));
    times_to_note_.push_back(std::move(step.times));
  }
  pending_.clear();
  NoteTimes(/*waits=*/Trace::OfProcess().is_on());
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
  return SumWithin(model_->groups.world(), score, [] { return "the loss"; });
}

}  // namespace tandem
