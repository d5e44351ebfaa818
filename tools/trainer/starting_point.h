// Starting point of a job: a checkpoint, given weights, or the beginning.

#ifndef TANDEM_TOOLS_TRAINER_STARTING_POINT_H_
#define TANDEM_TOOLS_TRAINER_STARTING_POINT_H_

#include <optional>

#include "absl/status/statusor.h"
#include "tools/trainer/checkpoints/position.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/run_report.h"

namespace tandem {

// Removes from --save_dir what killed jobs left of saves, and says so. For rank
// 0; others do nothing.
void RemoveLeftovers(const Job& job, RunReport& report);

// Loads what --resume names; where that is nothing, the weights of --init_from.
// Says what was loaded. None: the job begins at step 0. Collective.
absl::StatusOr<std::optional<TrainPosition>> FindStart(Job& job,
                                                       RunReport& report);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_STARTING_POINT_H_
