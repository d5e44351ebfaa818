// Linear layer's computation, with a backward of its own.

#ifndef TANDEM_MODELS_FUNCTIONS_LINEAR_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_LINEAR_FUNCTION_H_

#include <ATen/core/Tensor.h>

namespace tandem {

enum class WeightLayout {
  kOutIn,  // [out, in]: torch.nn.Linear
  kInOut,  // [in, out]: transformers.Conv1D
};

// x [..., in] -> [..., out], as torch.nn.functional.linear; `bias` [out] may be
// undefined. Here it is one node of the autograd graph, and its products go
// through MatrixProduct. Differentiable any number of times. Run under a
// WeightGradientSink it leaves weight's and bias's gradients there. Throws
// c10::Error where at::addmm does.
at::Tensor LinearFunction(const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& bias, WeightLayout layout);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_LINEAR_FUNCTION_H_
