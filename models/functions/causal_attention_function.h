// Causal self-attention, with a backward of its own.

#ifndef TANDEM_MODELS_FUNCTIONS_CAUSAL_ATTENTION_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_CAUSAL_ATTENTION_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

// From queries, keys and values side by side, [n, tokens, 3 * width], of so
// many heads, to [n, tokens, width]:
// torch.nn.functional.scaled_dot_product_attention with is_causal, within
// rounding, by the fused kernel (core/fused/causal_attention.h) where there is
// one (for floats, where none is for bf16 or fp16), else by LibTorch's. `heads`
// divide the width. Differentiable any number of times.
at::Tensor CausalAttentionFunction(const at::Tensor& qkv, int64_t heads);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_CAUSAL_ATTENTION_FUNCTION_H_
