// Linear layer and LayerNorm over the last dimension, as modules.

#ifndef TANDEM_MODELS_LAYERS_BASIC_MODULES_H_
#define TANDEM_MODELS_LAYERS_BASIC_MODULES_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>

#include "models/functions/linear_function.h"
#include "models/functions/norm_function.h"
#include "models/layers/adaptable_linear.h"

namespace tandem {

// torch.nn.Linear by LinearFunction: the same numbers up to rounding, by other
// ways. Runs under a WeightGradientSink.
class Linear : public torch::nn::LinearImpl, public AdaptableLinear {
 public:
  using torch::nn::LinearImpl::LinearImpl;

  at::Tensor forward(const at::Tensor& x) {
    return WithAddition(LinearFunction(x, weight, bias, WeightLayout::kOutIn),
                        x);
  }
  // Without the bias, which what follows adds.
  at::Tensor Product(const at::Tensor& x) const {
    return WithAddition(
        LinearFunction(x, weight, /*bias=*/{}, WeightLayout::kOutIn), x);
  }

  LinearWeight linear_weight() const override {
    return {"weight", weight, WeightLayout::kOutIn};
  }
};

// torch.nn.LayerNorm(width, eps). Runs under a WeightGradientSink.
class LayerNorm : public torch::nn::LayerNormImpl {
 public:
  explicit LayerNorm(int64_t width, double eps = 1e-5)
      : torch::nn::LayerNormImpl(
            torch::nn::LayerNormOptions({width}).eps(eps)) {}

  at::Tensor forward(const at::Tensor& x) {
    return LayerNormFunction(x, weight, bias, options.eps());
  }
};

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_BASIC_MODULES_H_
