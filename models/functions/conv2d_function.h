// Convolution as LibTorch computes it, with a backward that can be split.

#ifndef TANDEM_MODELS_FUNCTIONS_CONV2D_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_CONV2D_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

// torch.nn.functional.conv2d, bit for bit: x [n, in, h, w], weight [out, in,
// kernel, kernel], bias [out] or undefined. Run under a WeightGradientSink it
// leaves weight's and bias's gradients there.
//
// Under autocast a float32 weight is used in the lower precision; its gradient
// is float32.
at::Tensor Conv2dFunction(const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& bias, int64_t stride,
                          int64_t padding);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_CONV2D_FUNCTION_H_
