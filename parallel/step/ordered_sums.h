// Ordered sums: what makes a step the same in every layout of a mesh.

#ifndef TANDEM_PARALLEL_STEP_ORDERED_SUMS_H_
#define TANDEM_PARALLEL_STEP_ORDERED_SUMS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/pending_collective.h"
#include "core/model/batch.h"
#include "parallel/reproducible/ordered_gradients.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/mesh_strategy_options.h"

namespace tandem {

// In which order so many replicas sum gradients. InvalidArgument where the
// schedule or options.gradient_groups allow no order.
absl::StatusOr<GradientOrder> MakeGradientOrder(
    const MeshStrategyOptions& options, int replicas);

// Sums up scores of microbatches, of which these are this rank's, as one rank
// would add them: by microbatch of the whole batch. Collective over all ranks.
absl::StatusOr<Score> SumInOrder(const MeshModel& model,
                                 const std::vector<Score>& mine,
                                 const CollectivePurpose& purpose);

// Has a stage's running statistics take in all microbatches of the whole batch,
// in order. Collective over the stage's replicas.
absl::Status TakeInStatistics(const MeshModel& model, int stage);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_ORDERED_SUMS_H_
