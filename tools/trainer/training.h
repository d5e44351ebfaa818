// Training loop: epochs and steps of a job, with its checkpoints, evaluations
// and reports.

#ifndef TANDEM_TOOLS_TRAINER_TRAINING_H_
#define TANDEM_TOOLS_TRAINER_TRAINING_H_

#include "absl/status/status.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/replacement/replacement.h"
#include "tools/trainer/run_report.h"

namespace tandem {

// Trains, evaluates, saves and reports. Cancelled when a signal asked to stop,
// after a checkpoint of the step that all ranks stop after. With `replacement`
// it begins as that has it, and ends with an error, too, where its generation
// does. Collective.
absl::Status Train(Job& job, RunReport& report,
                   Replacement* replacement = nullptr);

// --eval_only: scores what the job starts from. Collective.
absl::Status EvaluateOnly(Job& job, RunReport& report);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_TRAINING_H_
