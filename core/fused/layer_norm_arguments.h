// What the two passes of layer normalisation share.

#ifndef TANDEM_CORE_FUSED_LAYER_NORM_ARGUMENTS_H_
#define TANDEM_CORE_FUSED_LAYER_NORM_ARGUMENTS_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// c10::Error unless `weight` (or bias) fits x.
inline void CheckLayerNorm(const at::Tensor& x, const at::Tensor& weight) {
  TORCH_CHECK(x.dim() >= 1 && weight.dim() == 1 &&
                  weight.size(0) == x.size(-1) &&
                  (weight.scalar_type() == at::kFloat ||
                   weight.scalar_type() == x.scalar_type()),
              "layer_norm of ", x.scalar_type(), x.sizes(),
              " and a weight or bias of ", weight.scalar_type(), weight.sizes(),
              ": these need one number for each of the last dimension, as ",
              "floats or of the same dtype");
}

inline at::Tensor AsFloats(const at::Tensor& x) {
  return x.to(at::kFloat).contiguous();
}

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_LAYER_NORM_ARGUMENTS_H_
