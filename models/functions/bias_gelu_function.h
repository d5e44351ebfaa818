// GELU of a sum with a bias, whose gradient can be left for later
// (core/model/weight_gradient_sink.h).

#ifndef TANDEM_MODELS_FUNCTIONS_BIAS_GELU_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_BIAS_GELU_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include "core/fused/bias_gelu.h"

namespace tandem {

// torch.nn.functional.gelu(x + bias, approximate): x [..., n], bias [n]. Made
// for what follows a product without a bias: it saves the passes that add the
// bias and sum its gradient.
//
// Float and bf16 on the CPU and on simulated devices take the fused kernels
// (core/fused/bias_gelu.h, which states the rounding); all else, and what is
// differentiated twice, LibTorch's.
at::Tensor BiasGeluFunction(const at::Tensor& x, const at::Tensor& bias,
                            GeluForm form);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_BIAS_GELU_FUNCTION_H_
