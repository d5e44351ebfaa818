// Normalisation (LayerNorm, BatchNorm, RMSNorm) whose weights' gradients can be
// left for later (core/model/weight_gradient_sink.h).

#ifndef TANDEM_MODELS_FUNCTIONS_NORM_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_NORM_FUNCTION_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// torch.nn.functional.layer_norm over the last dimension; weight and bias
// [x.size(-1)]. Float and bf16 on the CPU and on simulated devices take fused
// kernels (core/fused/layer_norm.h); all else, and what is differentiated
// twice, LibTorch's.
at::Tensor LayerNormFunction(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, double eps);

struct BatchNormArguments {
  at::Tensor weight, bias;  // [channels]
  // Undefined in training: not kept.
  at::Tensor running_mean, running_var;
  bool training = true;
  double momentum = 0.1;
  double eps = 1e-5;
};

// Statistics of the batch that was normalised: the mean and 1 / sqrt(variance +
// eps), the variance biased; [channels].
struct BatchStatistics {
  at::Tensor mean, inverse_deviation;
};

// torch.nn.functional.batch_norm of x [n, channels, ...], with its bits unless
// kernels are measured: then of images in the faster memory format;
// without a sink it is what is called. In training, writes what it has computed
// to `statistics`, if given.
at::Tensor BatchNormFunction(const at::Tensor& x,
                             const BatchNormArguments& arguments,
                             BatchStatistics* statistics = nullptr);

// RMSNorm (Zhang and Sennrich, 1910.07467):
// weight * x / sqrt(mean(x^2) + eps) over the last dimension, as
// torch.nn.functional.rms_norm; weight [x.size(-1)]. Gives x's dtype and
// computes in float, of doubles in double; keeps x and a number a row for
// backward. Differentiable any number of times.
at::Tensor RmsNormFunction(const at::Tensor& x, const at::Tensor& weight,
                           double eps);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_NORM_FUNCTION_H_
