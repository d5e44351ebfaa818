// Checks of a mesh model while it is made: what its ranks have, and parameters'
// traits, must fit the options, the mesh and each other.

#ifndef TANDEM_PARALLEL_STRATEGY_MESH_CHECKS_H_
#define TANDEM_PARALLEL_STRATEGY_MESH_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "core/comm/communicator.h"
#include "core/loss/loss.h"
#include "core/mesh/mesh.h"
#include "core/model/layer.h"
#include "core/model/parameter_traits.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/mesh_strategy_options.h"

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

// What must be the same on every rank, by name: the layers' names and types,
// parameters' traits, the outputs that the loss takes, schedule (whatever it is
// called), cuts, microbatches, optimizers and the other options. Timeouts may
// differ; of functions it is whether there is one. (What optimizer_group gives
// is compared when all parameters' names are known; what is within a hook or a
// loss, never.)
NamedValues MeshStrategyValues(const LayerSpecs& specs,
                               const LossFunction& loss,
                               const MeshStrategyOptions& options);

// InvalidArgument, on every rank alike, where these differ, with the option,
// the ranks and what each has. `world` is that of MeshStrategy::Create.
// Collective.
absl::Status CheckSameOptions(const LayerSpecs& specs, const LossFunction& loss,
                              const MeshStrategyOptions& options,
                              Communicator* world);

// Names that options have must be there, something must be left to be trained
// together, and parameters that wait for another must be in its stage. Notes
// which names all ranks have. Collective over the pipeline.
absl::Status CheckNames(MeshModel& model);

// The function options.optimizer_group must give the same on all ranks. After
// CheckNames. Collective.
absl::Status CheckOptimizerGroups(const MeshModel& model);

// Ranks that have the same stages, along every axis but the pipeline, must have
// the same names, shapes and dtypes there, unless the caller sees to that
// (ddp.init_sync): equal parts of what is sharded. Collective.
absl::Status CompareReplicas(const MeshModel& model);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_MESH_CHECKS_H_
