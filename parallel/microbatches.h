// A batch cut into microbatches along dimension 0, and put together again
// (torch.distributed.pipelining's split_args_kwargs_into_chunks and
// merge_chunks).

#ifndef TANDEM_PARALLEL_MICROBATCHES_H_
#define TANDEM_PARALLEL_MICROBATCHES_H_

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/batch.h"

namespace tandem {

// The sizes of `count` parts that differ by one at most, the greater first
// (torch.tensor_split); fewer parts if there are fewer samples, and none of
// none. Requires count >= 1.
std::vector<int64_t> EvenSizes(int64_t samples, int64_t count);

// Parts of `size` samples, the last one smaller where they do not divide
// (torch.split). Requires size >= 1.
std::vector<int64_t> FixedSizes(int64_t samples, int64_t size);

// Views. A batch whose tensors are undefined gives such ones. Requires sizes
// that add up to the batch's.
std::vector<Batch> SplitBatch(const Batch& batch,
                              const std::vector<int64_t>& sizes);

// Tensors within tuples, lists and dicts of any depth are cut; what is no
// tensor goes to every part. InvalidArgument, with the path of the tensor
// ("[0]['mask']"), for one whose dimension 0 is not the sum of `sizes`.
absl::StatusOr<std::vector<c10::IValue>> SplitValue(
    const c10::IValue& value, const std::vector<int64_t>& sizes);

// The reverse: tensors are concatenated; what is no tensor is the first part's.
// InvalidArgument for no parts, and parts of different structure.
absl::StatusOr<c10::IValue> JoinValues(const std::vector<c10::IValue>& parts);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_MICROBATCHES_H_
