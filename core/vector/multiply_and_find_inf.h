// Multiplication of tensors in place, with a check in the same pass of whether
// their elements were finite: what gradients of a scaled loss go through.

#ifndef TANDEM_CORE_VECTOR_MULTIPLY_AND_FIND_INF_H_
#define TANDEM_CORE_VECTOR_MULTIPLY_AND_FIND_INF_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace tandem {

// Multiplies all elements of `parts` (floating point, dense and contiguous, on
// one device) by `factor`; returns whether one of them was infinite or NaN
// before: _amp_foreach_non_finite_check_and_unscale_, with its bits.
//
// On CPU float and double are read once, and written once unless the factor is
// 1, on LibTorch's threads; others go through LibTorch, which waits for the
// device once. Throws c10::Error.
bool MultiplyAndFindInf(const std::vector<at::Tensor>& parts, float factor);

}  // namespace tandem

#endif  // TANDEM_CORE_VECTOR_MULTIPLY_AND_FIND_INF_H_
