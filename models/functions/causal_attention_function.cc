#include "models/functions/causal_attention_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
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
#include <vector>

#include "core/device/host_memory.h"
#include "core/fused/causal_attention.h"
#include "models/functions/attention_heads.h"
#include "models/functions/fused_operands.h"

namespace tandem {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

at::Tensor ByLibTorch(const at::Tensor& qkv, int64_t heads) {
  const std::vector<at::Tensor> parts = HeadsOf(qkv, heads);
  return JoinHeads(
      at::scaled_dot_product_attention(parts[0], parts[1], parts[2],
                                       /*attn_mask=*/{}, /*dropout_p=*/0,
                                       /*is_causal=*/true));
}

// By operators that can all be differentiated twice.
at::Tensor ByProducts(const at::Tensor& qkv, int64_t heads) {
  const std::vector<at::Tensor> parts = HeadsOf(qkv, heads);
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

// Of 16 bits, where the fused kernel takes floats alone: those are several
// times as fast as what LibTorch has for 16 bits there.
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

}  // namespace

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

}  // namespace tandem
