#include "core/model/axis/shard.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "absl/status/statusor.h"
#include "core/base/tensor_shard.h"

namespace tandem {

at::Tensor TakeShard(const at::Tensor& whole, const ParameterShard& shard,
                     int64_t degree, int64_t index) {
  const at::NoGradGuard no_grad;
  const absl::StatusOr<TensorShard> part =
      RankShard("that is cut", whole.sizes().vec(), shard, degree, index);
  TORCH_CHECK_VALUE(part.ok(), part.status().message());
  return SelectShard(whole, *part).contiguous().clone();
}

void KeepShard(const at::Tensor& parameter, const ParameterShard& shard,
               const AxisGroup& group) {
  const at::NoGradGuard no_grad;
  parameter.set_data(
      TakeShard(parameter, shard, group.degree(), group.index()));
}

}  // namespace tandem
