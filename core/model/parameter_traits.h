// Parameter traits: what a mesh and an optimizer do with a parameter.

#ifndef TANDEM_CORE_MODEL_PARAMETER_TRAITS_H_
#define TANDEM_CORE_MODEL_PARAMETER_TRAITS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// A parameter's dimension `dim` cut along an axis of the mesh: each rank has an
// equal part (core/model/parameter_shard.h).
struct ParameterShard {
  std::string axis;
  int64_t dim = 0;
  // The dimension is so many equal blocks side by side, each cut for itself:
  // queries, keys and values of one product are 3.
  int64_t blocks = 1;
  // The whole dimension's size where the degree does not divide it (a
  // vocabulary): the first ranks have one element more than the others. 0: it
  // does.
  int64_t uneven_size = 0;

  bool operator==(const ParameterShard& other) const {
    return axis == other.axis && dim == other.dim && blocks == other.blocks &&
           uneven_size == other.uneven_size;
  }
};

struct ParameterTraits {
  // The axes of the mesh (core/mesh/mesh.h) over which its gradient is reduced:
  // a mean over axes along which ranks see other samples ("data"), a sum over
  // all others, where each rank has the gradient of what it computes of the
  // same samples ("tensor": of its tokens, or of its heads). Without "data"
  // each replica trains its own.
  std::vector<std::string> reduce_axes = {"data"};
  // None: every rank that has it has all of it.
  std::optional<ParameterShard> shard = {};
  // PyTorch's parameter groups. Not negative.
  int64_t optimizer_group = 0;
  // Ranks that share it gather its low-precision copy alone
  // (core/model/low_precision_reads.h).
  bool gathers_low_precision = false;

  bool reduces_over(absl::string_view axis) const;
  // Whether ranks along an axis of the mesh have the same values of it between
  // steps: neither other parameters (as along the pipeline), nor parts of it,
  // nor one that each trains for itself.
  bool is_alike_along(absl::string_view axis) const;
  bool operator==(const ParameterTraits& other) const {
    return reduce_axes == other.reduce_axes && shard == other.shard &&
           optimizer_group == other.optimizer_group &&
           gathers_low_precision == other.gathers_low_precision;
  }
  bool operator!=(const ParameterTraits& other) const {
    return !(*this == other);
  }
};

// By a parameter's name; one that is not there has the usual ones.
using TraitsByName = std::map<std::string, ParameterTraits>;

ParameterTraits EffectiveTraits(const TraitsByName& traits,
                                const std::string& name);

// `said` of a parameter by its layer's spec, with what follows of the place at
// which its layer was made: the shard, and axes beside the usual ones.
ParameterTraits WithPlace(ParameterTraits said, const ParameterTraits& place);

// For a message: "reduced over data, group 1".
std::string Describe(const ParameterTraits& traits);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_PARAMETER_TRAITS_H_
