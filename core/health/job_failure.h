// Failure of a job told from outside of its groups: by a rank that has not
// joined them, or by the launcher of one that has died.

#ifndef TANDEM_CORE_HEALTH_JOB_FAILURE_H_
#define TANDEM_CORE_HEALTH_JOB_FAILURE_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "core/health/failure_note.h"
#include "core/launch/launch.h"

namespace tandem {

// Leaves a note that rank `launch.rank` gave up for a reason, or died in some
// way (`text`), over a connection of its own. Ranks that wait, also those that
// still wait for all to come, then end within a second and say so. On node 0,
// whose processes may serve the store, it stays until the other nodes' ranks
// have read it.
//
// Takes three times `patience` at most. An error says that the job could not be
// told: nobody serves the store yet, or any more.
absl::Status TellJobOfFailure(const Launch& launch, FailureNote::Kind kind,
                              const std::string& text,
                              std::chrono::milliseconds patience);

}  // namespace tandem

#endif  // TANDEM_CORE_HEALTH_JOB_FAILURE_H_
