// Checks of a mesh model while it is made: what its ranks have must fit the
// options, and each other.

#ifndef TANDEM_PARALLEL_STRATEGY_MESH_CHECKS_H_
#define TANDEM_PARALLEL_STRATEGY_MESH_CHECKS_H_

#include "absl/status/status.h"
#include "parallel/step/mesh_model.h"

namespace tandem {

// Names that options have must be there, something must be left to be trained
// together, and parameters that wait for another must be in its stage. Notes
// which names all ranks have. Collective over the pipeline.
absl::Status CheckNames(MeshModel& model);

// The function options.optimizer_group must give the same on all ranks. After
// CheckNames. Collective.
absl::Status CheckOptimizerGroups(const MeshModel& model);

// Replicas must have the same model, unless the caller sees to that
// (ddp.init_sync). Collective.
absl::Status CompareReplicas(const MeshModel& model);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_MESH_CHECKS_H_
