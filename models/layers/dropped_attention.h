// Causal self-attention with dropout of its probabilities (GPT-2's attn_pdrop).

#ifndef TANDEM_MODELS_LAYERS_DROPPED_ATTENTION_H_
#define TANDEM_MODELS_LAYERS_DROPPED_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tandem {

// DocumentAttentionFunction(qkv, heads, begins), where each probability is 0
// with probability p, else multiplied by 1 / (1 - p): by SampleDropout
// (dropout.h) of that name. No kernel does so with draws that are a function of
// the sample, so all [n, heads, tokens, tokens] of them are in memory.
at::Tensor DroppedAttention(const at::Tensor& qkv, int64_t heads,
                            const at::Tensor& begins, double p,
                            absl::string_view name);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_DROPPED_ATTENTION_H_
