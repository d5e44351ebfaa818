// Causal self-attention of several heads, from queries, keys and values as one
// product gives them, side by side: nothing is cut out of that product, copied
// or put together again.

#ifndef TANDEM_CORE_FUSED_CAUSAL_ATTENTION_H_
#define TANDEM_CORE_FUSED_CAUSAL_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace tandem {

// Whether it can be had for this dtype here: float or bf16, where there are
// products of it (row_major_gemm.h).
bool HasCausalAttention(at::ScalarType dtype);

// softmax(q k^T / sqrt(d)) v of each head, where a token sees itself and those
// before it: torch.nn.functional.scaled_dot_product_attention with is_causal.
// qkv [n, tokens, 3 * heads * d]: of each token its queries, keys and values,
// each of all heads. Gives [n, tokens, heads * d] of the same dtype, and for
// backward the logarithms of the sums of exponentials, floats [n, heads,
// tokens]. Sums are in float; what products of bf16 take is rounded to it, as
// LibTorch's own does. Needs memory for 64 x tokens floats a thread, not for
// tokens^2. The same bits for any number of threads.
//
// Operators of LibTorch (tandem::causal_attention,
// tandem::causal_attention_backward), for the CPU and simulated devices. Not
// differentiable: for autograd functions to call. Throws c10::Error on shapes
// and dtypes that do not fit.
std::tuple<at::Tensor, at::Tensor> CausalAttention(const at::Tensor& qkv,
                                                   int64_t heads);

// The gradient of qkv, from that of the result.
at::Tensor CausalAttentionBackward(const at::Tensor& dy, const at::Tensor& qkv,
                                   const at::Tensor& y,
                                   const at::Tensor& log_sums, int64_t heads);

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_CAUSAL_ATTENTION_H_
