// Shard of a parameter: which elements of the whole a rank along an axis has
// (core/model/parameter_traits.h), and how it comes to have no others.

#ifndef TANDEM_CORE_MODEL_AXIS_SHARD_H_
#define TANDEM_CORE_MODEL_AXIS_SHARD_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/model/axis/axis_group.h"
#include "core/model/parameter_shard.h"
#include "core/model/parameter_traits.h"

namespace tandem {

// What rank `index` of `degree` has of the whole tensor: a new one, contiguous.
// Throws c10::ValueError, as RankShard says it, where it cannot be cut so.
at::Tensor TakeShard(const at::Tensor& whole, const ParameterShard& shard,
                     int64_t degree, int64_t index);

// A parameter that is whole keeps what this rank has of it: the same tensor, so
// that whoever has it has its part now. What was whole is freed.
void KeepShard(const at::Tensor& parameter, const ParameterShard& shard,
               const AxisGroup& group);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_AXIS_SHARD_H_
