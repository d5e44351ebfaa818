#include "core/model/parameter_shard.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

// Where dimension `dim` is divided into blocks, and these between `degree`
// ranks.
absl::Status CheckDivides(absl::string_view name,
                          const std::vector<int64_t>& sizes,
                          const ParameterShard& shard, int64_t degree) {
  const auto dims = static_cast<int64_t>(sizes.size());
  if (shard.dim < 0 || shard.dim >= dims) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", name, " is sharded along ", shard.axis, " in dimension ",
        shard.dim, ", but its shape is [", absl::StrJoin(sizes, ", "), "]"));
  }
  const int64_t length = sizes[static_cast<size_t>(shard.dim)];
  const bool counts =
      shard.blocks >= 1 &&
      shard.blocks <= std::numeric_limits<int64_t>::max() / degree;
  const bool is_uneven = shard.blocks == 1 && length == shard.uneven_size;
  if (counts && (is_uneven || length % (shard.blocks * degree) == 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter ", name, " of shape [", absl::StrJoin(sizes, ", "),
      "] cannot be sharded along ", shard.axis, ": dimension ", shard.dim,
      " has ", length, " indices, which ", shard.blocks, " blocks x ", degree,
      " ranks do not divide"));
}

}  // namespace

ShardRange RangeOfRank(int64_t size, int64_t degree, int64_t index) {
  const int64_t least = size / degree;
  const int64_t longer = size % degree;  // how many ranks have one more
  return {index * least + std::min(index, longer),
          least + (index < longer ? 1 : 0)};
}

absl::StatusOr<TensorShard> RankShard(absl::string_view name,
                                      const std::vector<int64_t>& sizes,
                                      const ParameterShard& shard,
                                      int64_t degree, int64_t index) {
  const absl::Status divides = CheckDivides(name, sizes, shard, degree);
  if (!divides.ok()) return divides;
  TensorShard part = WholeShard(sizes);
  IndexRanges& ranges = part[static_cast<size_t>(shard.dim)];
  const int64_t block = ranges[0].length / shard.blocks;
  if (degree == 1 || block == 0) return part;
  const ShardRange mine = RangeOfRank(block, degree, index);
  if (mine.size == 0) {
    ranges = {{mine.begin, 0}};
    return part;
  }
  ranges.clear();
  for (int64_t i = 0; i < shard.blocks; ++i) {
    ranges.push_back({i * block + mine.begin, mine.size});
  }
  return part;
}

absl::StatusOr<std::vector<int64_t>> WholeSizes(
    absl::string_view name, const std::vector<int64_t>& sizes,
    const ParameterShard& shard, int64_t degree) {
  const absl::Status divides = CheckDivides(name, sizes, shard, /*degree=*/1);
  if (!divides.ok()) return divides;
  std::vector<int64_t> whole = sizes;
  int64_t& length = whole[static_cast<size_t>(shard.dim)];
  length = shard.uneven_size > 0 ? shard.uneven_size : length * degree;
  return whole;
}

}  // namespace tandem
