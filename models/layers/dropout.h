// Dropout (Srivastava et al., 2014) that depends on the sample, not on what was
// drawn before.

#ifndef TANDEM_MODELS_LAYERS_DROPOUT_H_
#define TANDEM_MODELS_LAYERS_DROPOUT_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>

#include "absl/strings/string_view.h"
#include "core/fused/dropout_add.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/axis/tensor_region.h"
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
//
// Where ranks share a sample, x may hold a `part` of its elements, which then
// drop what they would drop in the whole.
at::Tensor SampleDropout(const at::Tensor& x, double p, absl::string_view name,
                         const SamplePart& part = {});

// The same as a module; in evaluation it gives its input back. In a
// TensorParallelScope it stands outside of tensor-parallel regions, [n, tokens,
// ...] or this rank's part of the tokens, and all ranks drop what one would:
// there it must run in a SampleScope, else throws c10::Error.
class Dropout : public torch::nn::Module, public TensorRegionModule {
 public:
  // Throws c10::ValueError unless 0 <= p <= 1.
  Dropout(std::string name, double p);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  std::string name_;
  double p_;
};

// Where layers are divided over ranks, these would each draw others from
// default generators of their own: throws c10::Error, naming the dropout,
// outside of a SampleScope.
void CheckDrawsAlike(const TensorRegion& region, absl::string_view name);

// [n, ...] -> [n, ...]
LayerSpec DropoutLayer(const std::string& name, double p);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_DROPOUT_H_
