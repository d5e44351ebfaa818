// LayerNorm over the last dimension, as a module.

#ifndef TANDEM_MODELS_LAYERS_LAYER_NORM_H_
#define TANDEM_MODELS_LAYERS_LAYER_NORM_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>

#include "models/functions/norm_function.h"

namespace tandem {

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

#endif  // TANDEM_MODELS_LAYERS_LAYER_NORM_H_
