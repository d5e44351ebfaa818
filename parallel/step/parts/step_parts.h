// Table of a training step's parts, in the order in which the driver calls
// them.

#ifndef TANDEM_PARALLEL_STEP_PARTS_STEP_PARTS_H_
#define TANDEM_PARALLEL_STEP_PARTS_STEP_PARTS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/step_part.h"
#include "parallel/step/step_part_row.h"

namespace tandem {

// The order is that of a step's collectives, and of what is computed between
// them: a row that moves changes what ranks wait for.
absl::Span<const StepPartRow* const> StepPartRows();

// The parts that the model's options ask for. Its groups are there; its stages
// need not be yet. Collective.
absl::StatusOr<StepPartList> MakeStepParts(MeshModel& model);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_PARTS_STEP_PARTS_H_
