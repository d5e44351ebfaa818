// Dropout (Srivastava et al., 2014) that depends on the sample, not on what was
// drawn before.

#ifndef TANDEM_MODELS_LAYERS_DROPOUT_H_
#define TANDEM_MODELS_LAYERS_DROPOUT_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>

#include "absl/strings/string_view.h"
#include "core/model/layer.h"

namespace tandem {

// Each element of x is 0 with probability p, else multiplied by 1 / (1 - p): as
// torch.nn.functional.dropout in training, on any device. x [samples, ...], 0
// <= p <= 1.
//
// Inside a SampleScope the mask is a function of the scope's seed and step, of
// `name`, and of each row's sample: the same in whatever microbatches a batch
// is computed, on whatever rank, and again when it is recomputed. Each place in
// a model where something is dropped needs a name of its own. Outside of any it
// is LibTorch's, from the default generator.
at::Tensor SampleDropout(const at::Tensor& x, double p, absl::string_view name);

// The same as a module; in evaluation it gives its input back.
class Dropout : public torch::nn::Module {
 public:
  // Throws c10::ValueError unless 0 <= p <= 1.
  Dropout(std::string name, double p);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  std::string name_;
  double p_;
};

// [n, ...] -> [n, ...]
LayerSpec DropoutLayer(const std::string& name, double p);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_DROPOUT_H_
