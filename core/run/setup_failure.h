// Setup failures: refusals and failures before training, told to the ranks that
// would wait.

#ifndef TANDEM_CORE_RUN_SETUP_FAILURE_H_
#define TANDEM_CORE_RUN_SETUP_FAILURE_H_

#include <string>

#include "absl/status/status.h"
#include "core/launch/launch.h"

namespace tandem {

// Whether an error has its cause in this rank: not what a wait for others ends
// with when one of them is the cause.
bool IsOwnFault(const absl::Status& status);

// Tells the job why rank `launch.rank` goes no further
// (core/health/job_notes.h), so that other ranks end soon, and say why. Does
// nothing where a launcher of all ranks stops them, and for what is another
// rank's fault. Takes seconds at most; a job that cannot be reached is not
// told.
void ReportSetupFailure(const Launch& launch, const absl::Status& status);

// For a launcher: that a rank of its node has died, and how.
void ReportDeath(const Launch& rank, const std::string& how);

}  // namespace tandem

#endif  // TANDEM_CORE_RUN_SETUP_FAILURE_H_
