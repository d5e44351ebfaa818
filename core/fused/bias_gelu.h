// GELU of x + bias in one pass, and its backward in one: fused, where LibTorch
// adds, keeps the sum, and goes over it again with tanh or erf of more digits
// than a float has.

#ifndef TANDEM_CORE_FUSED_BIAS_GELU_H_
#define TANDEM_CORE_FUSED_BIAS_GELU_H_

#include <ATen/core/Tensor.h>

#include <tuple>

namespace tandem {

// The argument `approximate` of torch.nn.functional.gelu.
enum class GeluForm { kNone, kTanh };

// gelu(x + bias). x [..., n], contiguous or not, float or bf16; bias [n] of the
// same dtype. The result has x's shape and dtype, and is contiguous; it is
// computed in float, and within 4 units in the last place of max(|y|, 2^-3 |x +
// bias|) of the exact one. Any number of threads and any instruction set give
// the same bits.
//
// Operators of LibTorch (tandem::bias_gelu, tandem::bias_gelu_backward), so
// that devices know of them: CPU and simulated ones. Not differentiable: for
// autograd functions to call. Throws c10::Error on shapes and dtypes that do
// not fit.
at::Tensor BiasGelu(const at::Tensor& x, const at::Tensor& bias, GeluForm form);

// The gradients of x and of the bias, the latter float, from that of
// BiasGelu(x, bias).
std::tuple<at::Tensor, at::Tensor> BiasGeluBackward(const at::Tensor& dy,
                                                    const at::Tensor& x,
                                                    const at::Tensor& bias,
                                                    GeluForm form);

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_BIAS_GELU_H_
