// A trace of one step on all ranks.

#ifndef TANDEM_TOOLS_TRAINER_STEP_TRACE_H_
#define TANDEM_TOOLS_TRAINER_STEP_TRACE_H_

#include <string>

#include "absl/status/status.h"
#include "core/comm/communicator.h"

namespace tandem {

// Ends the trace of this process, and writes those of all ranks to `path` (on
// rank 0), for Perfetto or chrome://tracing. Collective.
absl::Status WriteStepTrace(const std::string& path, Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_STEP_TRACE_H_
