// RMSNorm (Zhang and Sennrich, 1910.07467) whose weight's gradient can be left
// for later (core/model/weight_gradient_sink.h).

#ifndef TANDEM_MODELS_FUNCTIONS_RMS_NORM_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_RMS_NORM_FUNCTION_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// weight * x / sqrt(mean(x^2) + eps) over the last dimension, as
// torch.nn.functional.rms_norm; weight [x.size(-1)]. Gives x's dtype and
// computes in float, of doubles in double; keeps x and a number a row for
// backward. Differentiable any number of times.
at::Tensor RmsNormFunction(const at::Tensor& x, const at::Tensor& weight,
                           double eps);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_RMS_NORM_FUNCTION_H_
