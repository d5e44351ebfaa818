// Kernels for the meta device of core/fused's operators: shapes, and the
// temporaries that stand for a whole call, as the CPU's have them.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace tandem {
namespace sim {
namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor Floats(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}

Three CrossEntropy(const at::Tensor& logits, const at::Tensor&,
                   std::optional<int64_t>) {
  const at::Tensor x = logits.contiguous();
  const at::Tensor losses = Floats({x.size(0)}, x);
  return {losses, at::empty_like(losses), at::empty_like(losses, at::kBool)};
}

at::Tensor CrossEntropyBackward(const at::Tensor& dlosses,
                                const at::Tensor& logits, const at::Tensor&,
                                const at::Tensor&, std::optional<int64_t>) {
  const at::Tensor x = logits.contiguous();
  const at::Tensor gradient = dlosses.contiguous();
  return at::empty_like(x);
}

// qkv: [n, tokens, 3 * width]
Two CausalAttention(const at::Tensor& qkv, int64_t heads) {
  const at::Tensor in = qkv.contiguous();
  const at::Tensor y =
      at::empty({in.size(0), in.size(1), in.size(2) / 3}, in.options());
  return {y, Floats({in.size(0), heads, in.size(1)}, in)};
}

at::Tensor CausalAttentionBackward(const at::Tensor& dy, const at::Tensor& qkv,
                                   const at::Tensor&, const at::Tensor&,
                                   int64_t) {
  const at::Tensor in = qkv.contiguous();
  const at::Tensor gradient = dy.contiguous();
  return at::empty_like(in);
}

at::Tensor BiasGelu(const at::Tensor& x, const at::Tensor&, bool) {
  return at::empty_like(x.contiguous());
}

Two BiasGeluBackward(const at::Tensor& dy, const at::Tensor& x,
                     const at::Tensor& bias, bool) {
  const at::Tensor in = x.contiguous();
  const at::Tensor gradient = dy.contiguous();
  return {at::empty_like(in), at::empty_like(bias)};
}

Three LayerNorm(const at::Tensor& x, const at::Tensor&, const at::Tensor&,
                double) {
  const at::Tensor in = x.contiguous();
  const at::Tensor mean = Floats({in.numel() / in.size(-1)}, in);
  return {at::empty_like(in), mean, at::empty_like(mean)};
}

at::Tensor DropoutAdd(const at::Tensor& x, const std::optional<at::Tensor>&,
                      double, int64_t, int64_t, int64_t, int64_t, int64_t) {
  return at::empty_like(x.contiguous());
}

at::Tensor ProductWithBias(const at::Tensor& a, const at::Tensor& b,
                           const at::Tensor&) {
  return at::empty({a.size(0), b.size(1)}, a.options());
}

TORCH_LIBRARY_IMPL(tandem, Meta, library) {
  library.impl("cross_entropy", &CrossEntropy);
  library.impl("cross_entropy_backward", &CrossEntropyBackward);
  library.impl("causal_attention", &CausalAttention);
  library.impl("causal_attention_backward", &CausalAttentionBackward);
  library.impl("bias_gelu", &BiasGelu);
  library.impl("bias_gelu_backward", &BiasGeluBackward);
  library.impl("layer_norm", &LayerNorm);
  library.impl("dropout_add", &DropoutAdd);
  library.impl("matrix_product_with_bias", &ProductWithBias);
}

}  // namespace
}  // namespace sim
}  // namespace tandem
