// Loss weights: which part of a step's loss each of its microbatches is, where
// the loss function weighs by other than samples (LossFunction::weight).

#ifndef TANDEM_PARALLEL_PIPELINE_LOSS_WEIGHTS_H_
#define TANDEM_PARALLEL_PIPELINE_LOSS_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/loss/loss.h"
#include "core/model/batch.h"

namespace tandem {

// Each microbatch's, by `loss.weight()`. InvalidArgument for targets that are
// undefined, further ones that are not those that the loss reads, and for a
// weight that is negative or not finite.
absl::StatusOr<std::vector<double>> LossWeights(
    const LossFunction& loss, const std::vector<Batch>& microbatches);

// Whether there is anything to compute a loss from.
bool HasTargets(const Batch& batch);

// What the loss reads of the batch; errors of NamedTargets.
absl::StatusOr<LossTargets> TargetsOf(const Batch& batch,
                                      const LossNames& names);

// Each weight as a part of `total`, which the parts of all replicas make; all 0
// where nothing counts.
std::vector<double> PartsOfTotal(const std::vector<double>& weights,
                                 double total);

// For a loss that weighs by samples: InvalidArgument where a microbatch of
// `size` samples has more or fewer predictions for each than another one, for
// the gradients would not be those of the uncut batch.
absl::Status CheckSameDensity(const Score& score, int64_t size,
                              const Score& other, int64_t other_size);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_LOSS_WEIGHTS_H_
