// Job check: what can be refused before any rank is started, and what else a
// launcher asks of its job.

#ifndef TANDEM_TOOLS_TRAINER_JOB_CHECK_H_
#define TANDEM_TOOLS_TRAINER_JOB_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "core/launch/launch.h"

namespace tandem {

// Whether the flags, which have been parsed, make a job, and each that was
// given does something in it; the error names the flag. `first`: this process's
// place, or that of the first rank that it will start.
absl::Status CheckJob(const Launch& first);

// Whether the job goes on without that rank: a worker of parameter servers.
bool CanBeLost(int rank);

// The newest checkpoint, from which a job that is started again goes on; empty:
// there is none.
std::string CheckpointOfRestart();

// How many ranks that die are replaced while the others go on.
int MaxReplacements();

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_CHECK_H_
