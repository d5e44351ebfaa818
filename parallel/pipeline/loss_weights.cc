#include "parallel/pipeline/loss_weights.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/batch_inputs.h"

namespace tandem {

bool HasTargets(const Batch& batch) {
  return batch.targets.defined() || !batch.further_targets.empty();
}

absl::StatusOr<LossTargets> TargetsOf(const Batch& batch,
                                      const LossNames& names) {
  TANDEM_ASSIGN_OR_RETURN(TensorsByName further,
                          NamedTargets(batch, names.targets));
  return LossTargets(batch.targets, std::move(further));
}

absl::StatusOr<std::vector<double>> LossWeights(
    const LossFunction& loss, const std::vector<Batch>& microbatches) {
  std::vector<double> weights;
  for (const Batch& each : microbatches) {
    if (!HasTargets(each)) {
      return absl::InvalidArgumentError(
          "the loss weighs by targets, but the batch has none");
    }
    TANDEM_ASSIGN_OR_RETURN(const LossTargets targets,
                            TargetsOf(each, loss.names()));
    TANDEM_ASSIGN_OR_RETURN(const double its,
                            CatchTorchOr([&] { return loss.weight()(targets); },
                                         "the loss's weight"));
    if (!std::isfinite(its) || its < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the loss of a batch of ", each.size, " samples weighs ",
                       its, ": a weight must be finite and not negative"));
    }
    weights.push_back(its);
  }
  return weights;
}

std::vector<double> PartsOfTotal(const std::vector<double>& weights,
                                 double total) {
  std::vector<double> parts;
  for (double each : weights) parts.push_back(total == 0 ? 0 : each / total);
  return parts;
}

absl::Status CheckSameDensity(const Score& score, int64_t size,
                              const Score& other, int64_t other_size) {
  if (score.count * other_size == other.count * size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the loss counts ", score.count, " predictions of ", size,
      " samples and ", other.count, " of ", other_size,
      " others, but weighs by samples: give the LossFunction a weight, so that "
      "each prediction counts the same"));
}

}  // namespace tandem
