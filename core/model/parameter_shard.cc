#include "core/model/parameter_shard.h"

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
  if (counts && length % (shard.blocks * degree) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter ", name, " of shape [", absl::StrJoin(sizes, ", "),
      "] cannot be sharded along ", shard.axis, ": dimension ", shard.dim,
      " has ", length, " indices, which ", shard.blocks, " blocks x ", degree,
      " ranks do not divide"));
}

}  // namespace

absl::StatusOr<TensorShard> ShardRanges(absl::string_view name,
                                        const std::vector<int64_t>& sizes,
                                        const ParameterShard& shard,
                                        int64_t degree, int64_t index) {
  const absl::Status divides = CheckDivides(name, sizes, shard, degree);
  if (!divides.ok()) return divides;
  TensorShard part = WholeShard(sizes);
  IndexRanges& ranges = part[static_cast<size_t>(shard.dim)];
  const int64_t block = ranges[0].length / shard.blocks;
  const int64_t length = block / degree;
  if (degree == 1 || length == 0) return part;
  ranges.clear();
  for (int64_t i = 0; i < shard.blocks; ++i) {
    ranges.push_back({i * block + index * length, length});
  }
  return part;
}

absl::StatusOr<std::vector<int64_t>> WholeSizes(
    absl::string_view name, const std::vector<int64_t>& sizes,
    const ParameterShard& shard, int64_t degree) {
  const absl::Status divides = CheckDivides(name, sizes, shard, /*degree=*/1);
  if (!divides.ok()) return divides;
  std::vector<int64_t> whole = sizes;
  whole[static_cast<size_t>(shard.dim)] *= degree;
  return whole;
}

}  // namespace tandem
