// RMSNorm over the last dimension, as a module and as a layer.

#ifndef TANDEM_MODELS_LAYERS_LLAMA_RMS_NORM_H_
#define TANDEM_MODELS_LAYERS_LLAMA_RMS_NORM_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "core/model/layer.h"
#include "models/layers/initialize.h"

namespace tandem {

// torch.nn.RMSNorm(width, eps). Runs under a WeightGradientSink.
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor weight_;
  double eps_;
};

// [..., width] -> [..., width]
LayerSpec RmsNormLayer(const std::string& name, int64_t width, double eps,
                       const InitialRule& rule);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_LLAMA_RMS_NORM_H_
