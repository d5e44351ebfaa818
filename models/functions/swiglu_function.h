// SwiGLU's gate (Shazeer, 2002.05202), with a backward of its own.

#ifndef TANDEM_MODELS_FUNCTIONS_SWIGLU_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_SWIGLU_FUNCTION_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// silu(gate) * up, of one shape and dtype: torch.nn.functional.silu(gate) * up.
// Keeps the two for backward, not silu(gate) as well, which is a third of what
// autograd would keep. Differentiable any number of times.
at::Tensor SwigluFunction(const at::Tensor& gate, const at::Tensor& up);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_SWIGLU_FUNCTION_H_
