// Activation functions with a backward of their own: GELU of a sum with a bias,
// and SwiGLU's gate (Shazeer, 2002.05202).

#ifndef TANDEM_MODELS_FUNCTIONS_ACTIVATION_FUNCTIONS_H_
#define TANDEM_MODELS_FUNCTIONS_ACTIVATION_FUNCTIONS_H_

#include <ATen/core/Tensor.h>

#include "core/fused/bias_gelu.h"

namespace tandem {

// torch.nn.functional.gelu(x + bias, approximate): x [..., n], bias [n]. Made
// for what follows a product without a bias: it saves the passes that add the
// bias and sum its gradient, which can be left for later
// (core/model/weight_gradient_sink.h).
//
// Float and bf16 on the CPU and on simulated devices take the fused kernels
// (core/fused/bias_gelu.h, which states the rounding); all else, and what is
// differentiated twice, LibTorch's.
at::Tensor BiasGeluFunction(const at::Tensor& x, const at::Tensor& bias,
                            GeluForm form);

// silu(gate) * up, of one shape and dtype: torch.nn.functional.silu(gate) * up.
// Keeps the two for backward, not silu(gate) as well, which is a third of what
// autograd would keep. Differentiable any number of times.
at::Tensor SwigluFunction(const at::Tensor& gate, const at::Tensor& up);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_ACTIVATION_FUNCTIONS_H_
