// Step trace: one step on all ranks.

#ifndef TANDEM_TOOLS_TRAINER_STEP_TRACE_H_
#define TANDEM_TOOLS_TRAINER_STEP_TRACE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Starts the trace of this process if `step`, from 1, is the one of
// --trace_step and --trace_file names a file. Says whether it did.
bool StartStepTrace(const TrainOptions& options, int64_t step);

// Ends the trace of this process, and writes those of all ranks to `path` (on
// rank 0), for Perfetto or chrome://tracing. Collective.
absl::Status WriteStepTrace(const std::string& path, Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_STEP_TRACE_H_
