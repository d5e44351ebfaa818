// Job check: what can be refused before any rank is started.

#ifndef TANDEM_TOOLS_TRAINER_JOB_CHECK_H_
#define TANDEM_TOOLS_TRAINER_JOB_CHECK_H_

#include "absl/status/status.h"
#include "core/launch/launch.h"

namespace tandem {

// Whether the flags, which have been parsed, make a job, and each that was
// given does something in it; the error names the flag. `first`: this process's
// place, or that of the first rank that it will start.
absl::Status CheckJob(const Launch& first);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_CHECK_H_
