// Agreement of ranks on what a MeshStrategy is made of: a part of it.

#ifndef TANDEM_PARALLEL_STRATEGY_MESH_AGREEMENT_H_
#define TANDEM_PARALLEL_STRATEGY_MESH_AGREEMENT_H_

#include "absl/status/status.h"
#include "core/agreement/agreement.h"
#include "core/comm/communicator.h"
#include "core/loss/loss.h"
#include "core/model/layer.h"
#include "parallel/step/mesh_strategy_options.h"

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_MESH_AGREEMENT_H_
