// Job check: what can be refused before any rank is started, what else a
// launcher asks of its job, and how one goes on whose ranks it has started
// again.

#ifndef TANDEM_TOOLS_TRAINER_JOB_CHECK_H_
#define TANDEM_TOOLS_TRAINER_JOB_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/launch/launch.h"
#include "tools/trainer/job/job.h"

namespace tandem {

// FailedPrecondition: a job that is at `step` would save in a folder that has
// another job's checkpoint of a later one, `newest`.
absl::Status MixedJobsError(const std::string& save_dir,
                            const std::string& newest, int64_t step);

// In a line, for a person: which attempt it is, with how many ranks, and what
// each has of a step, whose samples stay the same.
std::string DescribeAttempt(const Job& job);

// Has a restarted job go on from the newest checkpoint in --save_dir, if rank 0
// sees one there, whatever --resume was. Collective; does nothing for another
// job.
absl::Status ResumeAfterRestart(Job& job);

// Whether the flags, which have been parsed, make a job, and each that was
// given does something in it; the error names the flag. `first`: this process's
// place, or that of the first rank that it will start.
absl::Status CheckJob(const Launch& first);

// Whether the job goes on without that rank: a worker of parameter servers.
bool CanBeLost(int rank);

// The newest checkpoint, from which a job that is started again goes on; empty:
// there is none.
std::string RestartCheckpoint();

// How many ranks that die are replaced while the others go on.
int MaxReplacements();

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_CHECK_H_
