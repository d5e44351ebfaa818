// Adaptable linear layer: a module to whose product an adapter adds something
// that it computes of the same input (models/lora/lora.h).

#ifndef TANDEM_MODELS_LAYERS_ADAPTABLE_LINEAR_H_
#define TANDEM_MODELS_LAYERS_ADAPTABLE_LINEAR_H_

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/model/low_precision_reads.h"
#include "models/functions/linear_function.h"

namespace tandem {

// The weight of a linear layer: which of its module's own parameters it is, and
// how it is stored.
struct LinearWeight {
  std::string name;   // in the module: "weight"
  at::Tensor values;  // [out, in] or [in, out]
  WeightLayout layout = WeightLayout::kOutIn;

  int64_t inputs() const {
    return values.size(layout == WeightLayout::kOutIn ? 1 : 0);
  }
  int64_t outputs() const {
    return values.size(layout == WeightLayout::kOutIn ? 0 : 1);
  }
};

// A torch::nn::Module that derives from this, too, gives what it computes of
// its weight through WithAddition. Not thread-safe while an addition is set.
class AdaptableLinear : public ReadsLowPrecision {
 public:
  // x [..., inputs] -> [..., outputs], differentiable.
  using Addition = std::function<at::Tensor(const at::Tensor& x)>;

  virtual LinearWeight linear_weight() const = 0;

  std::vector<std::string> low_precision_parameters() const override {
    return {linear_weight().name};
  }

  // Null: none.
  void set_addition(Addition addition) { addition_ = std::move(addition); }

 protected:
  // `product` is x times the weight, with a bias or without one.
  at::Tensor WithAddition(const at::Tensor& product,
                          const at::Tensor& x) const {
    return addition_ ? product + addition_(x) : product;
  }

 private:
  Addition addition_;
};

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_ADAPTABLE_LINEAR_H_
