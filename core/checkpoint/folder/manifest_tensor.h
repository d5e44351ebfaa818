// Tensor of a manifest: in which files of a checkpoint's folder which of its
// elements lie.

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_MANIFEST_TENSOR_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_MANIFEST_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensor_shard.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem {

// Elements [begin, end) of a shard, in the order of its strides.
struct ManifestPiece {
  size_t file = 0;  // which of Manifest::files
  int64_t begin = 0;
  int64_t end = 0;
  uint32_t crc32 = 0;
  // What it is called in the file; empty: as the tensor.
  std::string name = {};
};

// What one rank had of a tensor, or several that shared it by memory.
struct ManifestShard {
  TensorShard ranges;
  std::vector<int64_t> strides;  // in which it was dense
  std::vector<ManifestPiece> pieces;
};

struct ManifestTensor {
  TensorInfo info;
  std::vector<ManifestShard> shards;
};

// Whether it has one shard, which is all of it.
bool IsInOneShard(const ManifestTensor& tensor);

// Where a piece lies in the tensor.
TensorSlice PieceSlice(const ManifestTensor& tensor, const ManifestShard& shard,
                       const ManifestPiece& piece);

// InvalidArgument, naming the tensor, unless its shards make it up, and their
// pieces them: none lies outside, none overlaps another, none is missing.
// Shards are cells of a grid: along each dimension two of them have the same
// ranges, or ranges that have no index in common.
absl::Status CheckTensor(const ManifestTensor& tensor);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_MANIFEST_TENSOR_H_
