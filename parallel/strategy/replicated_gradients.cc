// A replica's forward and backward, part by part.

#include <optional>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/host_numbers.h"
#include "core/device/memory_category.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "core/loss/deferred_score.h"
#include "core/loss/loss_terms.h"
#include "core/model/batch_inputs.h"
#include "core/random/sample_scope.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/strategy/replicated.h"
#include "parallel/strategy/score_numbers.h"

namespace tandem {

absl::StatusOr<Replicated::Outputs> Replicated::Forward(const Batch& batch) {
  const MemoryCategoryScope scope(MemoryCategory::kActivations);
  at::Tensor inputs = batch.inputs;
  TANDEM_ASSIGN_OR_RETURN(Skips further, NamedInputs(batch, further_inputs_));
  if (options_.device.has_value()) {
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
      inputs = inputs.to(*options_.device);
      for (auto& each : further) each.second = each.second.to(*options_.device);
    }));
  }
  return ddp_->Forward(inputs, further, loss_.names().outputs);
}

absl::StatusOr<LossArguments> Replicated::Arguments(const Outputs& outputs,
                                                    const Batch& batch) const {
  const MemoryCategoryScope scope(MemoryCategory::kActivations);
  TANDEM_ASSIGN_OR_RETURN(const LossTargets targets,
                          TargetsOf(batch, loss_.names()));
  return CatchTorchOr(
      [&] { return ArgumentsOf(outputs.first, outputs.second, targets); });
}

absl::StatusOr<LossResult> Replicated::Loss(
    const LossArguments& arguments) const {
  const MemoryCategoryScope scope(MemoryCategory::kActivations);
  return CatchTorchOr([&] { return loss_(arguments); });
}

absl::StatusOr<Replicated::PartResult> Replicated::ForwardPart(
    const Batch& part, int64_t first_sample) {
  const TraceScope scope("compute", "forward");
  PartResult result;
  const LossTerms::Scope collecting(&result.terms);
  const SampleScope samples({options_.seed, steps_, first_sample});
  TANDEM_ASSIGN_OR_RETURN(const Outputs outputs, Forward(part));
  TANDEM_ASSIGN_OR_RETURN(result.arguments, Arguments(outputs, part));
  TANDEM_ASSIGN_OR_RETURN(result.loss, Loss(result.arguments));
  return result;
}

// What backward begins from: the loss, and what was added to it, which weighs
// by samples.
absl::StatusOr<at::Tensor> Replicated::WeighedLoss(
    const PartResult& result, size_t part, double samples_part,
    std::vector<AddedPart>* added) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> parts, loss_parts_.Parts());
  const int64_t number =
      data_.rank() * options_.accumulation_steps + static_cast<int64_t>(part);
  return CatchTorchOr([&] {
    at::Tensor loss =
        WeighLoss(result.loss.loss, parts[part], result.arguments.outputs,
                  result.arguments.further_outputs);
    for (const LossTerms::Term& each : result.terms.terms()) {
      loss = loss.add(each.loss.to(loss.device()).reshape({}), samples_part);
      added->push_back({each.name, number, samples_part, each.loss.detach()});
    }
    return loss;
  });
}

absl::Status Replicated::SumAuxiliaryLosses(
    const std::vector<AddedPart>& added) {
  std::vector<at::Tensor> losses;
  for (const AddedPart& each : added) losses.push_back(each.loss);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> values,
                          CatchTorchOr([&] { return ReadNumbers(losses); }));
  const int ranks = communicates() ? data_.size() : 1;
  std::vector<LossSums::Part> parts;
  for (size_t i = 0; i < added.size(); ++i) {
    parts.push_back(
        {added[i].name, added[i].part, values[i] * added[i].weight / ranks});
  }
  return auxiliary_losses_.Sum(parts,
                               data_.size() * options_.accumulation_steps,
                               communicates() ? &data_ : nullptr);
}

// Waits for the device, once a step.
absl::StatusOr<Score> Replicated::SumOf(
    const std::vector<DeferredScore>& scores) const {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Score> read,
                          CatchTorchOr([&] { return ReadScores(scores); }));
  Score sum;
  for (const Score& each : read) sum += each;
  return sum;
}

absl::StatusOr<Score> Replicated::ForwardBackward(const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(batch, EvenSizes(batch.size, options_.accumulation_steps)));
  // With other ranks the score is on its way while backward runs.
  const bool sums = communicates() && data_.size() > 1;
  TANDEM_RETURN_IF_ERROR(
      loss_parts_.Start(loss_, parts, averages_gradients() ? &data_ : nullptr));
  std::vector<DeferredScore> scores;
  std::vector<AddedPart> added;
  int64_t first = data_.rank() * batch.size;  // sample of the global batch
  for (size_t i = 0; i < parts.size(); ++i) {
    const Batch& part = parts[i];
    const bool last = i + 1 == parts.size();
    std::optional<NoSyncGuard> no_sync;
    if (!last || !averages_gradients()) no_sync.emplace(ddp_->no_sync());
    TANDEM_ASSIGN_OR_RETURN(const PartResult result, ForwardPart(part, first));
    first += part.size;
    scores.push_back({result.loss.score, result.loss.sums});
    if (!loss_.weight()) {
      TANDEM_RETURN_IF_ERROR(CheckSameDensity(result.loss.score, part.size,
                                              scores.front().known,
                                              parts.front().size));
    }
    if (last) TANDEM_RETURN_IF_ERROR(FaultPoint("after_forward"));
    if (last && sums) {
      TANDEM_ASSIGN_OR_RETURN(const Score score, SumOf(scores));
      TANDEM_RETURN_IF_ERROR(StartSumOfScores(score));
    }
    const double weight =
        static_cast<double>(part.size) / static_cast<double>(batch.size);
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor loss,
                            WeighedLoss(result, i, weight, &added));
    TANDEM_RETURN_IF_ERROR(ddp_->Backward(loss));
  }
  TANDEM_RETURN_IF_ERROR(SumAuxiliaryLosses(added));
  return sums ? SumOfScores() : SumOf(scores);
}

absl::Status Replicated::StartSumOfScores(const Score& score) {
  ToNumbers(score, sums_.mutable_data_ptr<double>());
  TANDEM_ASSIGN_OR_RETURN(
      summing_, data_.StartAllReduceSum(sums_, 1, [] { return "the loss"; }));
  return absl::OkStatus();
}

absl::StatusOr<Score> Replicated::SumOfScores() {
  TANDEM_RETURN_IF_ERROR(summing_.Wait());
  return ScoreOf(sums_.const_data_ptr<double>());
}

}  // namespace tandem
