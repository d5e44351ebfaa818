// Tensor parallelism (Megatron-LM, 1909.08053): the products of a layer are
// divided over the ranks of a group, each of which has a part of its
// parameters; and sequence parallelism (2205.05198): what stands between those
// products is divided by tokens.
//
// Layers are told where they are made: inside a TensorParallelScope each keeps
// this rank's part of its parameters. The whole ones are drawn first, so that a
// model begins with the same values whatever the degree. Outside of a scope,
// and in a group of one rank, layers are whole.
//
//   auto parallel = std::make_shared<TensorParallel>();
//   parallel->group = ...;  // an AxisGroup
//   LayerList layers;
//   {
//     const TensorParallelScope scope(parallel);
//     layers = MakeLayers(*Gpt(options), seed);
//   }

#ifndef TANDEM_CORE_MODEL_AXIS_TENSOR_PARALLEL_H_
#define TANDEM_CORE_MODEL_AXIS_TENSOR_PARALLEL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/context/compute_context.h"
#include "core/model/axis/axis_functions.h"
#include "core/model/axis/axis_group.h"
#include "core/model/parameter_traits.h"

namespace torch {
namespace nn {
class Module;
}  // namespace nn
}  // namespace torch

namespace tandem {

struct TensorParallel {
  AxisGroupPtr group;
  // Between divided products activations are [n, tokens / degree, ...], each
  // rank's tokens behind those of the rank before it. Else all ranks have all
  // of them, and compute the same.
  bool sequence_parallel = true;
};

// While it lives, layers that the calling thread makes are divided so, and
// losses that it computes are of layers that are
// (models/tensor_parallel_loss.h). Null: whole. Scopes nest.
class TensorParallelScope : public ComputeContext::Scope {
 public:
  explicit TensorParallelScope(std::shared_ptr<const TensorParallel> parallel)
      : Scope([&](ComputeContext& context) {
          context.tensor_parallel = std::move(parallel);
        }) {}

  // The calling thread's. Null outside of all scopes, and for a group of one.
  static std::shared_ptr<const TensorParallel> Current();
};

// A module that derives from this, too, knows of tensor parallelism.
class TensorParallelModule {
 public:
  virtual ~TensorParallelModule() = default;

  // Keeps this rank's part of its own parameters, which have their initial
  // values, and computes with the group from now on; its children are told by
  // themselves. Gives what follows for its own parameters, by their names.
  // `name` is the module's in full. Throws c10::ValueError where sizes and
  // degree do not fit. Not collective. Called once at most.
  virtual TraitsByName Divide(const TensorParallel& parallel,
                              const std::string& name) = 0;
};

// Divides `module`, which is held by a shared_ptr, and all modules in it, where
// the calling thread is in a scope. `name` is its layer's. Gives the traits of
// what is not as usual, by the parameters' names in `module`.
//
// A module that is no TensorParallelModule stays whole, on every rank. With
// sequence parallelism nobody knows whether it sees all tokens or this rank's:
// one that has parameters of its own is refused, by name, as c10::ValueError.
TraitsByName DivideModule(torch::nn::Module& module, const std::string& name);

// Traits of a parameter of which each rank has a part.
ParameterTraits ShardTraits(const TensorParallel& parallel,
                            const ParameterShard& shard);

// Traits of parameters that are whole on each rank, and whose gradient is the
// sum of all ranks'.
TraitsByName SummedTraits(const TensorParallel& parallel,
                          const std::vector<std::string>& names);

// The same with sequence parallelism, where each rank has the gradient of its
// own tokens; else nothing, for all have that of all.
TraitsByName SequenceTraits(const TensorParallel& parallel,
                            const std::vector<std::string>& names);

// How many of `count` things ("heads") each rank has. Throws c10::ValueError,
// with the module's name, where the degree does not divide them.
int64_t ShareOfRank(const TensorParallel& parallel, int64_t count,
                    const std::string& things, const std::string& name);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_AXIS_TENSOR_PARALLEL_H_
