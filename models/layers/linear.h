// Linear layer as a module.

#ifndef TANDEM_MODELS_LAYERS_LINEAR_H_
#define TANDEM_MODELS_LAYERS_LINEAR_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

#include "models/functions/linear_function.h"

namespace tandem {

// torch.nn.Linear by LinearFunction: the same numbers up to rounding, by other
// ways. Runs under a WeightGradientSink.
class Linear : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;

  at::Tensor forward(const at::Tensor& x) {
    return LinearFunction(x, weight, bias, WeightLayout::kOutIn);
  }
};

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_LINEAR_H_
