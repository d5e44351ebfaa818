// Restarted job: one whose ranks its launcher has started again, after one
// died.

#ifndef TANDEM_TOOLS_TRAINER_RESTARTED_JOB_H_
#define TANDEM_TOOLS_TRAINER_RESTARTED_JOB_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/launch/restarts.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// The newest complete checkpoint of a folder of them; "" where there is none.
std::string NewestCheckpoint(const std::string& save_dir);

// FailedPrecondition: a job that is at `step` would save in a folder that has
// another job's checkpoint of a later one, `newest`.
absl::Status MixesJobs(const std::string& save_dir, const std::string& newest,
                       int64_t step);

// The error of MixesJobs where a job is to begin anew in a folder with
// checkpoints.
absl::Status CheckSaveFolderIsFree(const TrainOptions& options,
                                   RestartCount restarts);

// In a line, for a person: which attempt it is, with how many ranks, and what
// each has of a step, whose samples stay the same.
std::string DescribeAttempt(const Job& job);

// Has a restarted job go on from the newest checkpoint in --save_dir, if rank 0
// sees one there, whatever --resume was. Collective; does nothing for another
// job.
absl::Status ResumeAfterRestart(Job& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_RESTARTED_JOB_H_
