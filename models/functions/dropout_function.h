// Dropout, with a residual connection or without, whose mask is a function of
// the place: differentiable, with nothing kept for backward.

#ifndef TANDEM_MODELS_FUNCTIONS_DROPOUT_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_DROPOUT_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include "core/fused/dropout_add.h"

namespace tandem {

// x, of which `draws` drops elements and multiplies the others by 1 / (1 - p),
// plus `residual` unless that is undefined. x [samples, ...] of any
// floating-point dtype and device; residual of the same shape and dtype. As
// often differentiable as one likes.
//
// One pass where core/fused/dropout_add.h has a kernel; elsewhere the mask,
// made on the CPU, is a tensor.
at::Tensor DropoutFunction(const at::Tensor& x, const at::Tensor& residual,
                           const DropoutDraws& draws);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_DROPOUT_FUNCTION_H_
