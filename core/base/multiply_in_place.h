// In-place product of a tensor and a number.

#ifndef TANDEM_CORE_BASE_MULTIPLY_IN_PLACE_H_
#define TANDEM_CORE_BASE_MULTIPLY_IN_PLACE_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

namespace tandem {

// Multiplies a floating-point tensor. In bf16 and fp16 only the product is
// rounded, as by Python's `tensor *= factor`; C++'s Tensor::mul_ rounds the
// number first (LibTorch 2.15): a third becomes 0.334.
inline void MultiplyInPlace(const at::Tensor& tensor, double factor) {
  tensor.mul_(at::scalar_tensor(factor, at::kDouble));
}

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_MULTIPLY_IN_PLACE_H_
