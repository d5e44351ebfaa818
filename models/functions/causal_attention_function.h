// Causal self-attention, with a backward of its own.
//
// Heads of multi-head attention: queries, keys and values as they come from one
// product, and what heads give as one tensor again.
//
// Document-masked attention: causal self-attention that does not cross
// documents packed side by side in one sequence (Megatron-LM's
// --reset-attention-mask; block-diagonal causal, or "varlen", attention).
//
// Grouped-query attention (Ainslie et al., 2305.13245), causal.

#ifndef TANDEM_MODELS_FUNCTIONS_CAUSAL_ATTENTION_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_CAUSAL_ATTENTION_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tandem {

// [n, tokens, 3 * width] -> three views of [n, heads, tokens, width / heads].
// `heads` divides width.
std::vector<at::Tensor> SplitHeads(const at::Tensor& qkv, int64_t heads);

// [n, heads, tokens, head_dim] -> [n, tokens, heads * head_dim]
at::Tensor JoinHeads(const at::Tensor& heads);

// From queries, keys and values side by side, [n, tokens, 3 * width], of so
// many heads, to [n, tokens, width]:
// torch.nn.functional.scaled_dot_product_attention with is_causal, within
// rounding, by the fused kernel (core/fused/causal_attention.h) where there is
// one (for floats, where none is for bf16 or fp16), else by LibTorch's. `heads`
// divide the width. Differentiable any number of times.
at::Tensor CausalAttentionFunction(const at::Tensor& qkv, int64_t heads);

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

// From queries [n, tokens, heads, d] and keys and values [n, tokens, kv_heads,
// d], of which each is for heads / kv_heads neighbouring heads of queries, to
// [n, tokens, heads * d]: torch.nn.functional.scaled_dot_product_attention with
// is_causal and enable_gqa, within rounding, by DocumentAttentionFunction or,
// for 16 bits on GPUs and without `begins`, by LibTorch's kernels that take
// groups as they are. kv_heads divide the heads. Differentiable as often as
// those. `begins`: of documents, as DocumentAttentionFunction takes it.
at::Tensor GroupedAttentionFunction(const at::Tensor& queries,
                                    const at::Tensor& keys,
                                    const at::Tensor& values,
                                    const at::Tensor& begins = {});

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_CAUSAL_ATTENTION_FUNCTION_H_
