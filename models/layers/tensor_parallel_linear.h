// Column-parallel and row-parallel linear layers (Megatron-LM, 1909.08053,
// section 3; torch.distributed.tensor.parallel's ColwiseParallel and
// RowwiseParallel): the first divides its outputs over ranks, the second its
// inputs, so that a pair of them, with what works on each element between them,
// needs one sum over the ranks.
//
// Made outside of a TensorParallelScope (core/model/axis/tensor_parallel.h)
// they are linear layers, bit for bit; inside, a model of one's own is divided
// as GPT and Llama are:
//
//   LayerSpecs mlp = {DivideTokensLayer("tokens"),
//                     ColumnParallelLinearLayer("up", 64, 256),
//                     ReluLayer("relu"),
//                     RowParallelLinearLayer("down", 256, 64),
//                     LayerNormLayer("norm", 64),
//                     JoinTokensLayer("all")};
//
// Outside of the pair x is [n, tokens, in], or with sequence parallelism [n,
// tokens / degree, in]. Under autocast activations go between ranks in its
// dtype, and are summed in that.

#ifndef TANDEM_MODELS_LAYERS_TENSOR_PARALLEL_LINEAR_H_
#define TANDEM_MODELS_LAYERS_TENSOR_PARALLEL_LINEAR_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/tensors.h"
#include "core/model/axis/shard.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/axis/tensor_region.h"
#include "core/model/layer.h"
#include "models/functions/linear_function.h"
#include "models/layers/adaptable_linear.h"
#include "models/layers/basic_modules.h"
#include "models/layers/initialize.h"

namespace tandem {

// How outputs are divided.
struct ColumnShape {
  // They are so many blocks side by side, each divided for itself: queries,
  // keys and values of one product are 3.
  int64_t blocks = 1;
  // So many heads of a block, which stay whole; 0: outputs are each for itself.
  int64_t heads = 0;
  // Whether a degree that is a multiple of the heads is taken, too: then all
  // ranks have the whole weight, and compute one head of it (key-value heads of
  // grouped-query attention, as Megatron-LM replicates them).
  bool replicates_heads = false;
  // Whether the first ranks may have one more than the others (a vocabulary).
  bool may_be_uneven = false;
  std::string things = "heads";  // what messages call them
};

struct ColumnDivision {
  TraitsByName traits;
  // Where heads are replicated: which outputs are this rank's.
  ShardRange computed = {};
};

// Keep this rank's outputs, or inputs, of a linear layer's parameters
// (TensorParallelModule::Divide). An undefined bias is none; one of a layer
// whose inputs are divided stays whole. Throw c10::ValueError, with the
// module's name, for sizes that the degree does not divide.
ColumnDivision DivideColumns(const LinearWeight& weight,
                             const NamedTensors::value_type& bias,
                             const ColumnShape& shape,
                             const TensorParallel& parallel,
                             const std::string& name);
TraitsByName DivideRows(const LinearWeight& weight,
                        const NamedTensors::value_type& bias,
                        const TensorParallel& parallel,
                        const std::string& name);

// A linear module whose outputs are divided. `Base` is one that derives from
// AdaptableLinear, and has forward, Product (without its bias) and linear_bias.
template <typename Base>
class ColumnParallel : public Base, public TensorParallelModule {
 public:
  template <typename... Args>
  explicit ColumnParallel(ColumnShape shape, Args&&... args)
      : Base(std::forward<Args>(args)...), shape_(std::move(shape)) {}

  // x as it is outside of the region -> [..., out / degree], of all tokens.
  at::Tensor forward(const at::Tensor& x) { return Inside(Enter(x)); }

  // The two steps of it, for modules that share what goes in. `tokens`: as
  // TensorRegion::Enter takes them.
  at::Tensor Enter(const at::Tensor& x, int64_t tokens = 0) const {
    return region_.Enter(x, tokens);
  }
  at::Tensor Inside(const at::Tensor& x) {
    return computed_.size == 0 ? Base::forward(x)
                               : Computed(x, this->linear_bias().second);
  }
  // Without the bias, which what follows adds.
  at::Tensor Product(const at::Tensor& x) const {
    return computed_.size == 0 ? Base::Product(x) : Computed(x, /*bias=*/{});
  }

  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& name) override {
    ColumnDivision division = DivideColumns(
        this->linear_weight(), this->linear_bias(), shape_, parallel, name);
    region_ = TensorRegion(parallel, name);
    computed_ = division.computed;
    return std::move(division.traits);
  }

 private:
  at::Tensor Computed(const at::Tensor& x, const at::Tensor& bias) const {
    const LinearWeight weight = this->linear_weight();
    const auto part = [this](const at::Tensor& parameter, int64_t dim) {
      return parameter.narrow(dim, computed_.begin, computed_.size);
    };
    return LinearFunction(
        x, part(weight.values, weight.layout == WeightLayout::kOutIn ? 0 : 1),
        bias.defined() ? part(bias, 0) : bias, weight.layout);
  }

  const ColumnShape shape_;
  TensorRegion region_;
  ShardRange computed_;
};

// A linear module whose inputs are divided: [..., in / degree], of all tokens,
// -> [..., out] as it is outside of the region. The bias is added once, to the
// sum.
template <typename Base>
class RowParallel : public Base, public TensorParallelModule {
 public:
  using Base::Base;

  at::Tensor forward(const at::Tensor& x) {
    if (region_.is_whole()) return Base::forward(x);
    return AddBiasFunction(region_.Leave(Base::Product(x)),
                           this->linear_bias().second);
  }

  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& name) override {
    region_ = TensorRegion(parallel, name);
    return DivideRows(this->linear_weight(), this->linear_bias(), parallel,
                      name);
  }

 private:
  TensorRegion region_;
};

using ColumnParallelLinear = ColumnParallel<Linear>;
using RowParallelLinear = RowParallel<Linear>;

// torch.nn.Linear's parameters and initial values.
// [..., in_features] -> [..., out_features / degree]
LayerSpec ColumnParallelLinearLayer(const std::string& name,
                                    int64_t in_features, int64_t out_features,
                                    bool bias = true,
                                    InitialRule rule = PytorchDefault,
                                    const ColumnShape& shape = {});
// [..., in_features / degree] -> [..., out_features]
LayerSpec RowParallelLinearLayer(const std::string& name, int64_t in_features,
                                 int64_t out_features, bool bias = true,
                                 InitialRule rule = PytorchDefault);

// With sequence parallelism, from what all ranks compute of all tokens alike to
// this rank's, [n, tokens, ...] -> [n, tokens / degree, ...], and back: where a
// model of one's own begins and ends that has neither TokenEmbeddingLayer nor
// LinearHeadLayer (models/layers/token_embedding.h). Else they give back what
// they take. The first throws c10::ValueError where the degree does not divide
// the tokens.
LayerSpec DivideTokensLayer(const std::string& name);
LayerSpec JoinTokensLayer(const std::string& name);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_TENSOR_PARALLEL_LINEAR_H_
