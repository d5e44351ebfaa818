// Reading of a slice: from the values that a file has of a tensor, those that a
// shard of the tensor needs.

#ifndef TANDEM_CORE_CHECKPOINT_READ_SLICE_H_
#define TANDEM_CORE_CHECKPOINT_READ_SLICE_H_

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "core/base/tensor_shard.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_slice.h"

namespace tandem {

// Puts into `target`, on the host, shard `wanted` of the tensor, what `entry`
// has of it, whose values are `slice`, which lies within what its holder has.
// It reads the one run of the file in which these stand, and holds 16 MiB of
// it at most. Verifies the entry first; its errors are Verify's, with nothing
// changed, and those of the file.
absl::Status ReadSlice(SafetensorsReader& reader, const SafetensorsEntry& entry,
                       const TensorSlice& slice, const TensorShard& wanted,
                       const at::Tensor& target);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_READ_SLICE_H_
