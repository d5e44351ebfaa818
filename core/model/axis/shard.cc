#include "core/model/axis/shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <vector>

namespace tandem {

ShardRange RangeOfRank(int64_t size, int64_t degree, int64_t index) {
  const int64_t least = size / degree;
  const int64_t longer = size % degree;  // how many ranks have one more
  return {index * least + std::min(index, longer),
          least + (index < longer ? 1 : 0)};
}

at::Tensor TakeShard(const at::Tensor& whole, const ParameterShard& shard,
                     int64_t degree, int64_t index) {
  const at::NoGradGuard no_grad;
  const int64_t block = whole.size(shard.dim) / shard.blocks;
  const ShardRange range = RangeOfRank(block, degree, index);
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < shard.blocks; ++i) {
    parts.push_back(
        whole.narrow(shard.dim, i * block + range.begin, range.size));
  }
  return at::cat(parts, shard.dim);
}

void KeepShard(const at::Tensor& parameter, const ParameterShard& shard,
               const AxisGroup& group) {
  const at::NoGradGuard no_grad;
  parameter.set_data(
      TakeShard(parameter, shard, group.degree(), group.index()));
}

}  // namespace tandem
