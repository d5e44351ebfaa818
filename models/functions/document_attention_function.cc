#include "models/functions/document_attention_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/util/Exception.h>

#include <vector>

#include "models/functions/attention_heads.h"
#include "models/functions/causal_attention_function.h"

namespace tandem {
namespace {

// Of the documents of all samples, one sample behind the other.
std::vector<int64_t> LengthsOf(const at::Tensor& begins) {
  const at::Tensor rows = begins.contiguous();
  const auto* next = rows.const_data_ptr<int64_t>();
  std::vector<int64_t> lengths;
  for (int64_t sample = 0; sample < rows.size(0); ++sample) {
    for (int64_t i = 0; i < rows.size(1); ++i, ++next) {
      if (i == 0 || next[0] != next[-1]) lengths.push_back(0);
      ++lengths.back();
    }
  }
  return lengths;
}

// One split and one join: narrowing each by itself would add up gradients of
// the whole batch's size, one a document.
at::Tensor EachAlone(const at::Tensor& qkv, int64_t heads,
                     const at::Tensor& begins) {
  std::vector<at::Tensor> documents =
      qkv.flatten(0, 1).split_with_sizes(LengthsOf(begins));
  for (at::Tensor& document : documents) {
    document = CausalAttentionFunction(document.unsqueeze(0), heads).squeeze(0);
  }
  if (documents.empty()) return CausalAttentionFunction(qkv, heads);
  return at::cat(documents).unflatten(0, {qkv.size(0), qkv.size(1)});
}

}  // namespace

at::Tensor SeenKeys(const at::Tensor& begins) {
  const int64_t tokens = begins.size(1);
  const at::Tensor places = at::arange(tokens, begins.options());
  const at::Tensor earlier =
      places.view({1, 1, tokens}).le(places.view({1, tokens, 1}));
  return places.view({1, 1, tokens})
      .ge(begins.unsqueeze(2))
      .logical_and(earlier)
      .unsqueeze(1);
}

at::Tensor MaskedAttention(const at::Tensor& qkv, int64_t heads,
                           const at::Tensor& begins) {
  const std::vector<at::Tensor> parts = HeadsOf(qkv, heads);
  return JoinHeads(at::scaled_dot_product_attention(
      parts[0], parts[1], parts[2], SeenKeys(begins)));
}

at::Tensor DocumentAttentionFunction(const at::Tensor& qkv, int64_t heads,
                                     const at::Tensor& begins) {
  if (!begins.defined()) return CausalAttentionFunction(qkv, heads);
  TORCH_CHECK(begins.dim() == 2 && begins.scalar_type() == at::kLong &&
                  begins.sizes() == qkv.sizes().slice(0, 2),
              "attention of ", qkv.sizes(), " within documents that begin at ",
              begins.sizes(), ": expected int64 [n, tokens]");
  return qkv.is_cpu() ? EachAlone(qkv, heads, begins)
                      : MaskedAttention(qkv, heads, begins);
}

}  // namespace tandem
