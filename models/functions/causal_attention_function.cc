#include "models/functions/causal_attention_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "core/device/host_memory.h"
#include "core/fused/causal_attention.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

at::Tensor ByLibTorch(const at::Tensor& qkv, int64_t heads) {
  const std::vector<at::Tensor> parts = SplitHeads(qkv, heads);
  return JoinHeads(
      at::scaled_dot_product_attention(parts[0], parts[1], parts[2],
                                       /*attn_mask=*/{}, /*dropout_p=*/0,
                                       /*is_causal=*/true));
}

// By operators that can all be differentiated twice.
at::Tensor ByProducts(const at::Tensor& qkv, int64_t heads) {
  const std::vector<at::Tensor> parts = SplitHeads(qkv, heads);
  const at::Tensor& q = parts[0];
  const int64_t tokens = q.size(2);
  const at::Tensor unseen =
      at::ones({tokens, tokens}, q.options().dtype(at::kBool)).triu(1);
  const at::Tensor scores = at::matmul(q, parts[1].transpose(2, 3)) /
                            std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor seen =
      scores.masked_fill(unseen, -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(seen, -1), parts[2]).transpose(1, 2).flatten(2);
}

// Whether 16 bits become floats, where the fused kernel takes those alone: it
// is several times as fast as what LibTorch has for 16 bits there.
bool IsToBeWidened(const at::Tensor& qkv) {
  const at::ScalarType dtype = qkv.scalar_type();
  return RunsCpuKernels(qkv.device().type()) &&
         (dtype == at::kBFloat16 || dtype == at::kHalf) &&
         !HasCausalAttention(dtype) && HasCausalAttention(at::kFloat);
}

class CausalAttentionBackwardNode : public torch::autograd::Node {
 public:
  CausalAttentionBackwardNode(const at::Tensor& qkv, const at::Tensor& log_sums,
                              int64_t heads)
      : qkv_(qkv, /*is_output=*/false), log_sums_(log_sums), heads_(heads) {}

  std::string name() const override { return "CausalAttentionBackward"; }

  void Keep(const at::Tensor& y) { y_ = SavedVariable(y, /*is_output=*/true); }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const at::Tensor& dy = gradients[0];
    if (!dy.defined()) return variable_list(1);
    const at::Tensor qkv = qkv_.unpack(getptr());
    if (at::GradMode::is_enabled()) {
      return torch::autograd::grad({ByProducts(qkv, heads_)}, {qkv}, {dy},
                                   /*retain_graph=*/true,
                                   /*create_graph=*/true);
    }
    return {CausalAttentionBackward(dy, qkv, y_.unpack(getptr()), log_sums_,
                                    heads_)};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    qkv_.reset_data();
    y_.reset_data();
    log_sums_.reset();
  }

 private:
  SavedVariable qkv_;
  SavedVariable y_;
  at::Tensor log_sums_;
  const int64_t heads_;
};

// Lengths of the documents of all samples, one sample behind the other.
std::vector<int64_t> DocumentLengths(const at::Tensor& begins) {
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
      qkv.flatten(0, 1).split_with_sizes(DocumentLengths(begins));
  for (at::Tensor& document : documents) {
    document = CausalAttentionFunction(document.unsqueeze(0), heads).squeeze(0);
  }
  if (documents.empty()) return CausalAttentionFunction(qkv, heads);
  return at::cat(documents).unflatten(0, {qkv.size(0), qkv.size(1)});
}

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

std::vector<at::Tensor> SplitHeads(const at::Tensor& qkv, int64_t heads) {
  std::vector<at::Tensor> parts = qkv.chunk(3, /*dim=*/-1);
  for (at::Tensor& part : parts) {
    part = part.unflatten(2, {heads, part.size(2) / heads}).transpose(1, 2);
  }
  return parts;
}

at::Tensor JoinHeads(const at::Tensor& heads) {
  return heads.transpose(1, 2).flatten(2);
}

at::Tensor CausalAttentionFunction(const at::Tensor& qkv, int64_t heads) {
  if (IsToBeWidened(qkv)) {
    return CausalAttentionFunction(qkv.to(at::kFloat), heads)
        .to(qkv.scalar_type());
  }
  if (!IsForFusedKernels(qkv) || !HasCausalAttention(qkv.scalar_type())) {
    return ByLibTorch(qkv, heads);
  }
  std::tuple<at::Tensor, at::Tensor> results;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    results = CausalAttention(qkv, heads);
  }
  auto& [y, log_sums] = results;
  if (!torch::autograd::compute_requires_grad(qkv)) return y;
  const auto node =
      c10::make_intrusive<CausalAttentionBackwardNode>(qkv, log_sums, heads);
  node->set_next_edges(torch::autograd::collect_next_edges(qkv));
  torch::autograd::set_history(y, node);
  node->Keep(y);
  return y;
}

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
  const std::vector<at::Tensor> parts = SplitHeads(qkv, heads);
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
