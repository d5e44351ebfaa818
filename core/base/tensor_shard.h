// Tensor shard: the part of a tensor that one of its holders has, by ranges of
// indices along each dimension.
//
// A chunk of PyTorch's distributed checkpoints (ChunkStorageMetadata) has one
// range a dimension. Several are what a rank has of a weight that is made of
// blocks, each of which is cut for itself: of GPT-2's query, key and value in
// one [in, 3 w], which two ranks share,
//
//   dimension 1:  |  query  |   key   |  value  |
//   rank 0:       |xxxx     |xxxx     |xxxx     |   {0+w/2, w+w/2, 2w+w/2}
//
// Plain arithmetic but for the functions that take tensors, which may throw
// LibTorch's exceptions. All may be called from any thread.

#ifndef TANDEM_CORE_BASE_TENSOR_SHARD_H_
#define TANDEM_CORE_BASE_TENSOR_SHARD_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct IndexRange {
  int64_t begin = 0;
  int64_t length = 0;

  int64_t end() const { return begin + length; }
  bool operator==(const IndexRange& other) const {
    return begin == other.begin && length == other.length;
  }
  bool operator<(const IndexRange& other) const {
    return std::tie(begin, length) < std::tie(other.begin, other.length);
  }
};

// Ranges of one dimension, in rising order; none overlaps another, and none is
// empty but the one range of a dimension that is.
using IndexRanges = std::vector<IndexRange>;

// By dimension. What the holder has is a tensor of these indices alone, side by
// side: of 8 columns, {0+2, 6+2} are a tensor of 4. Of a scalar: empty.
using TensorShard = std::vector<IndexRanges>;

// All of a tensor.
TensorShard WholeShard(const std::vector<int64_t>& sizes);

// The sizes of what the holder has.
std::vector<int64_t> ShardSizes(const TensorShard& shard);

// InvalidArgument, naming the dimension, unless it is a shard of a tensor of
// these sizes.
absl::Status CheckShard(const TensorShard& shard,
                        const std::vector<int64_t>& sizes);

// Shard `inner` of what is shard `outer` of a tensor, in the tensor's own
// indices.
TensorShard ShardOfShard(const TensorShard& outer, const TensorShard& inner);

// Indices that two shards of one tensor have in common, along one dimension: so
// many neighbours, which stand there in one and in the other.
struct CommonRange {
  int64_t in_first = 0;
  int64_t in_second = 0;
  int64_t length = 0;
};
std::vector<CommonRange> CommonRanges(const IndexRanges& first,
                                      const IndexRanges& second);

// The shard of `whole`: a view of it where each dimension has one range, else a
// copy.
at::Tensor SelectShard(const at::Tensor& whole, const TensorShard& shard);

// Copies the elements that both have, from `source`, shard `from` of a tensor,
// to `target`, shard `to` of the same.
void CopyCommon(const at::Tensor& source, const TensorShard& from,
                const at::Tensor& target, const TensorShard& to);

// "0+2,6+2;0+5": BEGIN+LENGTH of each range, dimensions parted by ";".
std::string FormatShard(const TensorShard& shard);
// False for a text that is none.
bool ParseShard(absl::string_view text, TensorShard* shard);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_TENSOR_SHARD_H_
