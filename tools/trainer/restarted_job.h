// Restarted job: one whose ranks its launcher has started again, after one
// died.

#ifndef TANDEM_TOOLS_TRAINER_RESTARTED_JOB_H_
#define TANDEM_TOOLS_TRAINER_RESTARTED_JOB_H_

#include <string>

#include "absl/status/status.h"
#include "core/launch/restart_count.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// The newest complete checkpoint of a folder of them; "" where there is none.
std::string NewestCheckpoint(const std::string& save_dir);

// FailedPrecondition where a launcher may restart a job that begins anew in a
// folder with checkpoints: it would go on from another job's.
absl::Status CheckRestarts(const TrainOptions& options, RestartCount restarts);

// In a line, for a person: which attempt it is, with how many ranks, and what
// each has of a step, whose samples stay the same.
std::string DescribeAttempt(const Job& job);

// Has a restarted job go on from the newest checkpoint in --save_dir, if rank 0
// sees one there, whatever --resume was. Collective; does nothing for another
// job.
absl::Status ResumeAfterRestart(Job& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_RESTARTED_JOB_H_
