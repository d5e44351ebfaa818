// Layer normalisation over the last dimension, forward and backward, in one
// pass over memory each: a row stays in the cache while its moments are taken
// and its values written.

#ifndef TANDEM_CORE_FUSED_LAYER_NORM_H_
#define TANDEM_CORE_FUSED_LAYER_NORM_H_

#include <ATen/core/Tensor.h>

#include <tuple>

namespace tandem {

// y = (x - mean) * rstd * weight + bias of each row, where rstd is
// 1 / sqrt(variance + eps), the variance biased. x [..., n], float or bf16;
// weight and bias [n], float or of x's dtype (both alike). y has x's shape and
// dtype, mean and rstd are floats [rows]. Computed in float; any number of
// threads and any instruction set give the same bits.
//
// Operators of LibTorch (tandem::layer_norm, tandem::layer_norm_backward), for
// the CPU and simulated devices. Not differentiable: for autograd functions to
// call. Throws c10::Error on shapes and dtypes that do not fit.
std::tuple<at::Tensor, at::Tensor, at::Tensor> FusedLayerNorm(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    double eps);

// The gradients of x, and of weight and bias (of their dtype); those that are
// not asked for are undefined. `mean` and `rstd` are FusedLayerNorm's.
std::tuple<at::Tensor, at::Tensor, at::Tensor> FusedLayerNormBackward(
    const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
    const at::Tensor& rstd, const at::Tensor& weight, bool wants_input,
    bool wants_weights);

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_LAYER_NORM_H_
