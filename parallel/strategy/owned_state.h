// Owned state: which ranks of a mesh write what of a checkpoint, and which part
// of a stored tensor a rank loads, where parameters may be sharded along an
// axis.
//
// Each element of a tensor is written by one rank, its owner: of those that
// have it, the one with coordinate 0 along every axis that the tensor is not
// sharded over. Along `pipe` ranks have other tensors altogether. Arithmetic:
// no rank is asked.

#ifndef TANDEM_PARALLEL_STRATEGY_OWNED_STATE_H_
#define TANDEM_PARALLEL_STRATEGY_OWNED_STATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensor_shard.h"
#include "core/base/tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/mesh/mesh.h"
#include "core/model/parameter_traits.h"

namespace tandem {

// What a rank has of a parameter of which others have other parts.
struct ShardOfParameter {
  std::string axis;            // along which they have
  std::vector<int64_t> sizes;  // of the whole parameter
  TensorShard shard;
};

// By the parameter's name; what is not there the rank has all of.
using ShardsByName = std::map<std::string, ShardOfParameter>;

// Finds the sharded ones among `parameters`, this rank's, under all their
// names; all names of one tensor go by the traits of the first.
// InvalidArgument, naming the parameter, where its traits do not fit its shape
// (WholeSizes).
absl::StatusOr<ShardsByName> FindShards(const NamedTensors& parameters,
                                        const TraitsByName& traits,
                                        const Mesh& mesh, int rank);

// A rank's place, and what it has shards of.
struct OwnerPlace {
  const Mesh& mesh;
  int rank = 0;
  const ShardsByName& shards;
};

// Selects what this rank owns, and so writes, of `state`: what it has of a
// checkpoint, by names there. State of a sharded parameter is sharded as that,
// but for single numbers (steps). Tensors alias those of `state`.
StatePart OwnedState(const NamedTensors& state, const OwnerPlace& place);

// The same of optimizer state, by "PARAMETER.STATE", of which the ranks along
// `axes` have a slice each (Optimizer::SharedState), by names in a checkpoint.
StatePart OwnedShare(const StatePart& share,
                     const std::vector<absl::string_view>& axes,
                     const OwnerPlace& place);

// What this rank reads of `state`, which has whole tensors: of sharded ones its
// shard. `parameter_of`: whose a tensor is, by its name. InvalidArgument,
// naming the tensor, for one that has not the sizes of the whole parameter.
absl::StatusOr<StoredTensors> ShardsToLoad(
    const StoredTensors& state, const ShardsByName& shards,
    absl::FunctionRef<std::string(const std::string&)> parameter_of);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_OWNED_STATE_H_
