// Parameter shard: which part of a parameter a rank has, by the parameter's
// traits and the rank's place on the axis that it is cut along (what Shard(dim)
// of a DTensor says, with blocks).

#ifndef TANDEM_CORE_MODEL_PARAMETER_SHARD_H_
#define TANDEM_CORE_MODEL_PARAMETER_SHARD_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensor_shard.h"
#include "core/model/parameter_traits.h"

namespace tandem {

// The part of a parameter of these sizes that rank `index` of `degree` along
// the axis has: of each block of dimension `dim` the index-th of `degree` equal
// parts. Requires 0 <= index < degree. InvalidArgument, naming the parameter,
// for a dimension that it lacks, or whose length does not divide by
// blocks x degree.
absl::StatusOr<TensorShard> ShardRanges(absl::string_view name,
                                        const std::vector<int64_t>& sizes,
                                        const ParameterShard& shard,
                                        int64_t degree, int64_t index);

// Sizes of the parameter of which each of `degree` ranks has a part of `sizes`.
// InvalidArgument, naming the parameter, for a dimension that it lacks, or
// whose length does not divide by the blocks.
absl::StatusOr<std::vector<int64_t>> WholeSizes(
    absl::string_view name, const std::vector<int64_t>& sizes,
    const ParameterShard& shard, int64_t degree);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_PARAMETER_SHARD_H_
