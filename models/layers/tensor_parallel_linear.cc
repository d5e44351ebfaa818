#include "models/layers/tensor_parallel_linear.h"

#include <c10/util/Exception.h>

#include <memory>
#include <vector>

#include "models/layers/module_layer.h"

namespace tandem {
namespace {

// Dimension of the outputs.
int64_t OutputDim(const LinearWeight& weight) {
  return weight.layout == WeightLayout::kOutIn ? 0 : 1;
}

void Keep(const NamedTensors::value_type& parameter,
          const ParameterShard& shard, const TensorParallel& parallel,
          TraitsByName* traits) {
  if (!parameter.second.defined()) return;
  KeepShard(parameter.second, shard, *parallel.group);
  (*traits)[parameter.first] = ShardTraits(parallel, shard);
}

bool Replicates(const ColumnShape& shape, int64_t degree) {
  return shape.replicates_heads && shape.heads > 0 && shape.heads < degree &&
         degree % shape.heads == 0;
}

void CheckHeads(const ColumnShape& shape, const TensorParallel& parallel,
                const std::string& name) {
  const int64_t degree = parallel.group->degree();
  TORCH_CHECK_VALUE(!shape.replicates_heads || shape.heads % degree == 0, name,
                    " has ", shape.heads, " ", shape.things, ", which ", degree,
                    " ranks along ", parallel.group->axis(),
                    " cannot share evenly: choose a degree that "
                    "divides ",
                    shape.heads, ", or a multiple of it");
  ShareOfRank(parallel, shape.heads, shape.things, name);
}

// All ranks keep the weight; neighbours compute the same head.
ColumnDivision Replicated(const LinearWeight& weight,
                          const NamedTensors::value_type& bias,
                          const ColumnShape& shape,
                          const TensorParallel& parallel) {
  std::vector<std::string> names = {weight.name};
  if (bias.second.defined()) names.push_back(bias.first);
  const int64_t sharers = parallel.group->degree() / shape.heads;
  const int64_t outputs = weight.outputs() / shape.heads;
  return {SummedTraits(parallel, names),
          {parallel.group->index() / sharers * outputs, outputs}};
}

class DividedTokens : public torch::nn::Module, public TensorRegionModule {
 public:
  at::Tensor forward(const at::Tensor& x) const {
    region_.CheckTokens(x.size(1));
    return region_.Outside(x);
  }
};

class JoinedTokens : public torch::nn::Module, public TensorRegionModule {
 public:
  at::Tensor forward(const at::Tensor& x) const {
    return region_.Everywhere(x);
  }
};

}  // namespace

ColumnDivision DivideColumns(const LinearWeight& weight,
                             const NamedTensors::value_type& bias,
                             const ColumnShape& shape,
                             const TensorParallel& parallel,
                             const std::string& name) {
  const int64_t degree = parallel.group->degree();
  if (Replicates(shape, degree)) {
    return Replicated(weight, bias, shape, parallel);
  }
  ParameterShard shard;
  shard.dim = OutputDim(weight);
  shard.blocks = shape.blocks;
  if (shape.heads > 0) {
    CheckHeads(shape, parallel, name);
  } else if (!shape.may_be_uneven) {
    ShareOfRank(parallel, weight.outputs() / shape.blocks, "outputs", name);
  } else {
    TORCH_CHECK_VALUE(weight.outputs() >= degree, name, " has ",
                      weight.outputs(), " rows for ", degree, " ranks along ",
                      parallel.group->axis(), ": choose a degree of ",
                      weight.outputs(), " at most");
    if (weight.outputs() % degree != 0) shard.uneven_size = weight.outputs();
  }
  ColumnDivision division;
  Keep({weight.name, weight.values}, shard, parallel, &division.traits);
  shard.dim = 0;
  Keep(bias, shard, parallel, &division.traits);
  return division;
}

TraitsByName DivideRows(const LinearWeight& weight,
                        const NamedTensors::value_type& bias,
                        const TensorParallel& parallel,
                        const std::string& name) {
  ShareOfRank(parallel, weight.inputs(), "inputs", name);
  TraitsByName traits;
  if (bias.second.defined()) traits = SequenceTraits(parallel, {bias.first});
  ParameterShard shard;
  shard.dim = 1 - OutputDim(weight);
  Keep({weight.name, weight.values}, shard, parallel, &traits);
  return traits;
}

LayerSpec ColumnParallelLinearLayer(const std::string& name,
                                    int64_t in_features, int64_t out_features,
                                    bool bias, InitialRule rule,
                                    const ColumnShape& shape) {
  const auto options =
      torch::nn::LinearOptions(in_features, out_features).bias(bias);
  return ModuleLayer<ColumnParallelLinear>(
      name, "Linear",
      [options, shape] {
        return std::make_shared<ColumnParallelLinear>(shape, options);
      },
      std::move(rule));
}

LayerSpec RowParallelLinearLayer(const std::string& name, int64_t in_features,
                                 int64_t out_features, bool bias,
                                 InitialRule rule) {
  const auto options =
      torch::nn::LinearOptions(in_features, out_features).bias(bias);
  return ModuleLayer<RowParallelLinear>(
      name, "Linear",
      [options] { return std::make_shared<RowParallelLinear>(options); },
      std::move(rule));
}

LayerSpec DivideTokensLayer(const std::string& name) {
  return ModuleLayer<DividedTokens>(
      name, "DivideTokens", [] { return std::make_shared<DividedTokens>(); });
}

LayerSpec JoinTokensLayer(const std::string& name) {
  return ModuleLayer<JoinedTokens>(
      name, "JoinTokens", [] { return std::make_shared<JoinedTokens>(); });
}

}  // namespace tandem
