// Gradients kept from growing too large (torch.nn.utils.clip_grad_*).

#ifndef TANDEM_PARALLEL_GRADIENT_CLIPPING_H_
#define TANDEM_PARALLEL_GRADIENT_CLIPPING_H_

#include "parallel/flat_buffer.h"

namespace tandem {

// The 2-norm of all gradients of `buffers` together, as PyTorch has it: the
// norm of the parameters' norms, in the order of the parameters that the
// buffers were made of, not in that of the buffers.
double GradientNorm(const FlatBuffers& buffers);

// clip_grad_norm_: scales all gradients by max_norm / (norm + 1e-6) if that is
// less than 1. Returns the norm before. One that is not finite makes every
// gradient NaN or zero, as in PyTorch. Requires max_norm > 0.
double ClipGradientNorm(const FlatBuffers& buffers, double max_norm);

// clip_grad_value_: every element into [-clip_value, clip_value]. Requires
// clip_value > 0.
void ClipGradientValue(const FlatBuffers& buffers, double clip_value);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_GRADIENT_CLIPPING_H_
