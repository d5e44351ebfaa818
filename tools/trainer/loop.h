// The training loop. It does not know which strategy it drives.

#ifndef TANDEM_TOOLS_TRAINER_LOOP_H_
#define TANDEM_TOOLS_TRAINER_LOOP_H_

#include "absl/status/status.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/report/report.h"

namespace tandem {

// Resumes where --resume says, trains, evaluates, saves and reports.
// Collective. Cancelled when an interrupt asked to stop; what was saved before
// stays.
absl::Status RunJob(Job& job, Report& report);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_LOOP_H_
