// A replica's forward and backward, part by part.

#include <optional>
#include <utility>

#include "core/batch_inputs.h"
#include "core/fault_point.h"
#include "core/loss_terms.h"
#include "core/memory_category.h"
#include "core/sample_scope.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "core/trace.h"
#include "parallel/microbatches.h"
#include "parallel/replicated.h"
#include "parallel/score_numbers.h"

namespace tandem {

absl::StatusOr<at::Tensor> Replicated::Forward(const Batch& batch) {
  const MemoryCategoryScope scope(MemoryCategory::kActivations);
  at::Tensor inputs = batch.inputs;
  TANDEM_ASSIGN_OR_RETURN(Skips further, NamedInputs(batch, further_inputs_));
  if (options_.device.has_value()) {
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
      inputs = inputs.to(*options_.device);
      for (auto& each : further) each.second = each.second.to(*options_.device);
    }));
  }
  return ddp_->Forward(inputs, further);
}

absl::StatusOr<LossResult> Replicated::Loss(const at::Tensor& outputs,
                                            const Batch& batch) const {
  const MemoryCategoryScope scope(MemoryCategory::kActivations);
  return CatchTorchOr(
      [&] { return loss_(outputs, batch.targets.to(outputs.device())); });
}

absl::StatusOr<Replicated::PartResult> Replicated::ForwardPart(
    const Batch& part, int64_t first_sample) {
  const TraceScope scope("compute", "forward");
  PartResult result;
  const LossTerms::Scope collecting(&result.terms);
  const SampleScope samples({options_.seed, steps_, first_sample});
  TANDEM_ASSIGN_OR_RETURN(result.outputs, Forward(part));
  TANDEM_ASSIGN_OR_RETURN(result.loss, Loss(result.outputs, part));
  return result;
}

// What backward begins from: the loss, and what was added to it, which weighs
// by samples.
absl::StatusOr<at::Tensor> Replicated::WeighedLoss(
    const PartResult& result, size_t part, double samples_part,
    std::vector<LossSums::Part>* added) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> parts, loss_parts_.Parts());
  const int64_t number =
      data_.rank() * options_.accumulation_steps + static_cast<int64_t>(part);
  const int ranks = communicates() ? data_.size() : 1;
  return CatchTorchOr([&] {
    at::Tensor loss = WeighLoss(result.loss.loss, parts[part], result.outputs);
    for (const LossTerms::Term& each : result.terms.terms()) {
      loss = loss.add(each.loss.to(loss.device()).reshape({}), samples_part);
      added->push_back(
          {each.name, number, each.loss.item<double>() * samples_part / ranks});
    }
    return loss;
  });
}

absl::StatusOr<Score> Replicated::ForwardBackward(const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(batch, EvenSizes(batch.size, options_.accumulation_steps)));
  const bool sums = communicates();
  TANDEM_RETURN_IF_ERROR(loss_parts_.Start(
      loss_.weight(), parts, averages_gradients() ? &data_ : nullptr));
  Score score, first_score;
  std::vector<LossSums::Part> added;
  int64_t first = data_.rank() * batch.size;  // sample of the global batch
  for (size_t i = 0; i < parts.size(); ++i) {
    const Batch& part = parts[i];
    const bool last = i + 1 == parts.size();
    std::optional<NoSyncGuard> no_sync;
    if (!last || !averages_gradients()) no_sync.emplace(ddp_->no_sync());
    TANDEM_ASSIGN_OR_RETURN(const PartResult result, ForwardPart(part, first));
    first += part.size;
    score += result.loss.score;
    if (i == 0) first_score = result.loss.score;
    if (!loss_.weight()) {
      TANDEM_RETURN_IF_ERROR(CheckSameDensity(result.loss.score, part.size,
                                              first_score, parts.front().size));
    }
    if (last) TANDEM_RETURN_IF_ERROR(FaultPoint("after_forward"));
    // On its way while backward runs.
    if (last && sums) TANDEM_RETURN_IF_ERROR(StartSumOfScores(score));
    const double weight =
        static_cast<double>(part.size) / static_cast<double>(batch.size);
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor loss,
                            WeighedLoss(result, i, weight, &added));
    TANDEM_RETURN_IF_ERROR(ddp_->Backward(loss));
  }
  TANDEM_RETURN_IF_ERROR(
      added_losses_.Sum(added, data_.size() * options_.accumulation_steps,
                        sums ? &data_ : nullptr));
  return sums ? SumOfScores() : score;
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
