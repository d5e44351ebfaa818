// Grouped-query attention (Ainslie et al., 2305.13245), causal.

#ifndef TANDEM_MODELS_FUNCTIONS_GROUPED_ATTENTION_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_GROUPED_ATTENTION_FUNCTION_H_

#include <ATen/core/Tensor.h>

namespace tandem {

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

#endif  // TANDEM_MODELS_FUNCTIONS_GROUPED_ATTENTION_FUNCTION_H_
