// Document-masked attention: causal self-attention that does not cross
// documents packed side by side in one sequence (Megatron-LM's
// --reset-attention-mask; block-diagonal causal, or "varlen", attention).

#ifndef TANDEM_MODELS_FUNCTIONS_DOCUMENT_ATTENTION_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_DOCUMENT_ATTENTION_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

// CausalAttentionFunction of qkv [n, tokens, 3 * width], where token i of a
// sample sees no token before begins[sample, i] (core/model/batch.h): int64
// [n, tokens] on the device of qkv. Undefined: documents are whole samples.
//
// On the CPU it is CausalAttentionFunction of each document alone, which costs
// the sum of their lengths' squares and no memory for a mask; elsewhere
// torch.nn.functional.scaled_dot_product_attention with a boolean mask, which
// waits for no device. Differentiable as often as those.
at::Tensor DocumentAttentionFunction(const at::Tensor& qkv, int64_t heads,
                                     const at::Tensor& begins);

// [n, 1, tokens, tokens]: whether the query of a row sees the key of a column.
at::Tensor SeenKeys(const at::Tensor& begins);

// The second way, on any device.
at::Tensor MaskedAttention(const at::Tensor& qkv, int64_t heads,
                           const at::Tensor& begins);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_DOCUMENT_ATTENTION_FUNCTION_H_
