// Microbatches: a batch cut along dimension 0 (torch.distributed.pipelining's
// split_args_kwargs_into_chunks), and the part of a step's loss that each of
// them is, where the loss function weighs by other than samples
// (LossFunction::weight).

#ifndef TANDEM_PARALLEL_PIPELINE_MICROBATCHES_H_
#define TANDEM_PARALLEL_PIPELINE_MICROBATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/loss/loss.h"
#include "core/model/batch.h"

namespace tandem {

// The sizes of `count` parts that differ by one at most, the greater first
// (torch.tensor_split); fewer parts if there are fewer samples, and none of
// none. Requires count >= 1.
std::vector<int64_t> EvenSizes(int64_t samples, int64_t count);

// Parts of `size` samples, the last one smaller where they do not divide
// (torch.split). Requires size >= 1.
std::vector<int64_t> FixedSizes(int64_t samples, int64_t size);

// Views: the same samples of inputs and targets, and of further ones, these
// within tuples, lists and dicts of any depth. Tensors that are undefined stay
// so. Requires sizes that add up to the batch's. InvalidArgument, with its name
// and path ("boxes[0]"), for a tensor whose dimension 0 is not the batch's
// size; one part is the batch as it is.
absl::StatusOr<std::vector<Batch>> SplitBatch(
    const Batch& batch, const std::vector<int64_t>& sizes);

// Each microbatch's, by `loss.weight()`. InvalidArgument for targets that are
// undefined, further ones that are not those that the loss reads, and for a
// weight that is negative or not finite.
absl::StatusOr<std::vector<double>> LossWeights(
    const LossFunction& loss, const std::vector<Batch>& microbatches);

// Whether there is anything to compute a loss from.
bool HasTargets(const Batch& batch);

// What the loss reads of the batch; errors of NamedTargets.
absl::StatusOr<LossTargets> BatchTargets(const Batch& batch,
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

#endif  // TANDEM_PARALLEL_PIPELINE_MICROBATCHES_H_
