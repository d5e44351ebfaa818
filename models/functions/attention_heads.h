// Heads of multi-head attention: queries, keys and values as they come from one
// product, and what heads give as one tensor again.

#ifndef TANDEM_MODELS_FUNCTIONS_ATTENTION_HEADS_H_
#define TANDEM_MODELS_FUNCTIONS_ATTENTION_HEADS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tandem {

// [n, tokens, 3 * width] -> three views of [n, heads, tokens, width / heads].
// `heads` divides width.
std::vector<at::Tensor> HeadsOf(const at::Tensor& qkv, int64_t heads);

// [n, heads, tokens, head_dim] -> [n, tokens, heads * head_dim]
at::Tensor JoinHeads(const at::Tensor& heads);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_ATTENTION_HEADS_H_
