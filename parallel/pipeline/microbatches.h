// Microbatches: a batch cut along dimension 0 (torch.distributed.pipelining's
// split_args_kwargs_into_chunks).

#ifndef TANDEM_PARALLEL_PIPELINE_MICROBATCHES_H_
#define TANDEM_PARALLEL_PIPELINE_MICROBATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_MICROBATCHES_H_
