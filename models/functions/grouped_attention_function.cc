#include "models/functions/grouped_attention_function.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "core/device/host_memory.h"
#include "models/functions/document_attention_function.h"

namespace tandem {
namespace {

// Whether LibTorch has a kernel that neither repeats keys and values nor needs
// memory for tokens^2: FlashAttention on CUDA.
bool TakesGroups(const at::Tensor& queries) {
  return !RunsCpuKernels(queries.device().type()) &&
         (queries.scalar_type() == at::kHalf ||
          queries.scalar_type() == at::kBFloat16);
}

// [n, tokens, kv_heads, d] -> [n, tokens, heads * d]
at::Tensor ForEachHead(const at::Tensor& x, int64_t heads) {
  const int64_t kv_heads = x.size(2);
  return x.unsqueeze(3)
      .expand({x.size(0), x.size(1), kv_heads, heads / kv_heads, x.size(3)})
      .reshape({x.size(0), x.size(1), heads * x.size(3)});
}

at::Tensor ByLibTorch(const at::Tensor& queries, const at::Tensor& keys,
                      const at::Tensor& values) {
  return at::scaled_dot_product_attention(
             queries.transpose(1, 2), keys.transpose(1, 2),
             values.transpose(1, 2), /*attn_mask=*/{}, /*dropout_p=*/0,
             /*is_causal=*/true, /*scale=*/{}, /*enable_gqa=*/true)
      .transpose(1, 2)
      .flatten(2);
}

}  // namespace

at::Tensor GroupedAttentionFunction(const at::Tensor& queries,
                                    const at::Tensor& keys,
                                    const at::Tensor& values,
                                    const at::Tensor& begins) {
  if (TakesGroups(queries) && !begins.defined()) {
    return ByLibTorch(queries, keys, values);
  }
  const int64_t heads = queries.size(2);
  const at::Tensor side_by_side =
      at::cat({queries.flatten(2), ForEachHead(keys, heads),
               ForEachHead(values, heads)},
              /*dim=*/2);
  return DocumentAttentionFunction(side_by_side, heads, begins);
}

}  // namespace tandem
