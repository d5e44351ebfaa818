// Prediction of a rehearsed job's step from the work that its devices counted.

#ifndef TANDEM_TOOLS_TRAINER_REHEARSAL_STEP_PREDICTION_H_
#define TANDEM_TOOLS_TRAINER_REHEARSAL_STEP_PREDICTION_H_

#include "absl/status/status.h"
#include "core/mesh/mesh.h"
#include "parallel/schedule/schedule.h"
#include "tools/trainer/rehearsal/rehearsed_job.h"

namespace tandem {

// Sets `job`'s times. A device's work and what it receives are shared out
// evenly among its stages' microbatches; devices wait for each other as the
// schedule, one replica's, says; behind it come the longest wait for
// collectives and the longest update. Requires as many devices on each rank of
// the mesh.
absl::Status PredictStep(const Schedule& schedule, const Mesh& mesh,
                         RehearsedJob* job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REHEARSAL_STEP_PREDICTION_H_
