#include "models/decoding/cached_attention.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <optional>

namespace tandem {
namespace {

// [tokens, past + tokens]: whether the query of a row sees the key of a column.
// None where all see all.
std::optional<at::Tensor> SeenKeys(const at::Tensor& queries, int64_t past) {
  const int64_t tokens = queries.size(2);
  if (tokens == 1) return std::nullopt;
  return at::ones({tokens, past + tokens}, queries.options().dtype(at::kBool))
      .tril(past);
}

}  // namespace

at::Tensor CachedAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, KvCache& cache) {
  const KeysAndValues all = cache.Append(keys, values);
  return at::scaled_dot_product_attention(
      queries, all.keys, all.values, SeenKeys(queries, cache.past()),
      /*dropout_p=*/0, /*is_causal=*/false, /*scale=*/std::nullopt,
      /*enable_gqa=*/queries.size(1) != keys.size(1));
}

}  // namespace tandem
