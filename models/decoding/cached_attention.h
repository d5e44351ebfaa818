// Cached attention: causal self-attention of new tokens over a KV cache.

#ifndef TANDEM_MODELS_DECODING_CACHED_ATTENTION_H_
#define TANDEM_MODELS_DECODING_CACHED_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include "models/decoding/kv_cache.h"

namespace tandem {

// Appends a pass's keys and values [n, kv_heads, tokens, head] to `cache` and
// gives the attention of its queries [n, heads, tokens, head] over all that the
// cache then has, each token over itself and those before it: [n, heads,
// tokens, head of values]. kv_heads divide heads; of each, heads / kv_heads
// neighbouring queries have the keys (grouped-query attention, as PyTorch's
// enable_gqa). Scores are scaled by 1 / sqrt(head). No gradients.
//
// The cache's errors, and LibTorch's for shapes that do not fit, are thrown.
at::Tensor CachedAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, KvCache& cache);

}  // namespace tandem

#endif  // TANDEM_MODELS_DECODING_CACHED_ATTENTION_H_
