// Checks of parameters' traits against a mesh.

#ifndef TANDEM_PARALLEL_STRATEGY_STAGE_TRAIT_CHECKS_H_
#define TANDEM_PARALLEL_STRATEGY_STAGE_TRAIT_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/mesh/mesh.h"
#include "core/model/layer.h"
#include "core/model/parameter_traits.h"

namespace tandem {

// Traits of a model that is not made yet, by full name.
TraitsByName NamedTraits(const LayerSpecs& specs);

// InvalidArgument, naming the parameter, for an axis that the mesh lacks, and
// for a gradient reduced along the pipeline, where each rank has other
// parameters; Unimplemented for a parameter that is sharded along an axis of
// several ranks.
absl::Status CheckTraits(const TraitsByName& traits, const Mesh& mesh);

// InvalidArgument, naming the parameter, where one is each replica's own, which
// `what` does not go with.
absl::Status CheckAllAreReduced(const TraitsByName& traits, const Mesh& mesh,
                                absl::string_view what);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STAGE_TRAIT_CHECKS_H_
