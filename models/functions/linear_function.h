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
//
// Nothing is kept for backward of an x that AllGatherAlong has gathered over
// ranks: it gathers it once more (core/model/axis/axis_functions.h).
at::Tensor LinearFunction(const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& bias, WeightLayout layout);

// x [..., out] plus bias [out], of x's dtype: for a product that has been
// summed over ranks before. Keeps nothing for backward. As often differentiable
// as one likes. Run under a WeightGradientSink it leaves the bias's gradient
// there, which is summed in the bias's dtype. An undefined bias is none.
at::Tensor AddBiasFunction(const at::Tensor& x, const at::Tensor& bias);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_LINEAR_FUNCTION_H_
