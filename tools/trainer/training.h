// Training loop: epochs and steps of a job, with its checkpoints, evaluations
// and reports.

#ifndef TANDEM_TOOLS_TRAINER_TRAINING_H_
#define TANDEM_TOOLS_TRAINER_TRAINING_H_

#include "absl/status/status.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/run_report.h"

namespace tandem {

// Trains, evaluates, saves and reports. Cancelled when a signal asked to stop,
// after a checkpoint of the step that all ranks stop after. Collective.
absl::Status Train(Job& job, RunReport& report);

// --eval_only: scores what the job starts from. Collective.
absl::Status EvaluateOnly(Job& job, RunReport& report);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_TRAINING_H_
