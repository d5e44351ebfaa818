// Linear layer and LayerNorm over the last dimension, as modules.

#ifndef TANDEM_MODELS_LAYERS_BASIC_MODULES_H_
#define TANDEM_MODELS_LAYERS_BASIC_MODULES_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <string>

#include "core/base/tensors.h"
#include "core/model/axis/tensor_parallel.h"
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
  // Undefined where there is none.
  NamedTensors::value_type linear_bias() const { return {"bias", bias}; }
};

// torch.nn.LayerNorm(width, eps). Runs under a WeightGradientSink. In a
// TensorParallelScope it normalises what is outside of tensor-parallel regions:
// whole tokens, this rank's or all.
class LayerNorm : public torch::nn::LayerNormImpl, public TensorParallelModule {
 public:
  explicit LayerNorm(int64_t width, double eps = 1e-5)
      : torch::nn::LayerNormImpl(
            torch::nn::LayerNormOptions({width}).eps(eps)) {}

  at::Tensor forward(const at::Tensor& x) {
    return LayerNormFunction(x, weight, bias, options.eps());
  }

  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& /*name*/) override {
    return SequenceTraits(parallel, {"weight", "bias"});
  }
};

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_BASIC_MODULES_H_
