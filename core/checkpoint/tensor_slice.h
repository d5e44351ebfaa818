// Tensor slice: neighbours in the memory of a tensor, or of the shard of it
// that a rank has.
//
// Flat buffers are cut by memory (a sharded optimizer's state), and a
// parameter's order there need not be row-major (channels-last). Shards are cut
// by indices (tensor parallelism), and a flat buffer of shards by memory again.

#ifndef TANDEM_CORE_CHECKPOINT_TENSOR_SLICE_H_
#define TANDEM_CORE_CHECKPOINT_TENSOR_SLICE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/tensor_shard.h"

namespace tandem {

// Where neighbours in a holder's memory lie in the whole tensor.
struct TensorSlice {
  std::vector<int64_t> sizes;    // of the whole tensor
  std::vector<int64_t> strides;  // in which what the holder has is dense
  int64_t begin = 0;             // the slice's first element, in that order
  // What the holder has of the whole tensor; empty: all of it.
  TensorShard shard = {};
};

// The strides of a row-major tensor.
std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& sizes);

// What the holder has; never empty but for a scalar.
TensorShard HeldShard(const TensorSlice& slice);

// All of `shard` of a tensor of these sizes, row-major.
TensorSlice SliceOfShard(std::vector<int64_t> sizes, TensorShard shard);

// In the order of a slice of so many elements, the shortest run with all those
// that it has in common with `wanted`, a shard of the same tensor; of length 0:
// there are none. Requires a slice that lies within what its holder has.
IndexRange CommonRun(const TensorSlice& slice, int64_t elements,
                     const TensorShard& wanted);

// Copies what `target`, shard `wanted` of the tensor, has of a slice's values.
// These are of any shape: their row-major order is the slice's. As CommonRun
// requires. May throw LibTorch's exceptions.
void CopySlice(const TensorSlice& slice, const at::Tensor& values,
               const TensorShard& wanted, const at::Tensor& target);

// "6;2,3;3,1": BEGIN;SIZES;STRIDES, without the shard (FormatShard).
std::string FormatSlice(const TensorSlice& slice);
// False for a text that is none.
bool ParseSlice(absl::string_view text, TensorSlice* slice);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_TENSOR_SLICE_H_
