// Threads of a rank: its share of this host's cores.

#ifndef TANDEM_TOOLS_TRAINER_JOB_THREADS_H_
#define TANDEM_TOOLS_TRAINER_JOB_THREADS_H_

#include "absl/status/statusor.h"
#include "core/launch/launch.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Sets this process up for so many threads of operators as it gives (and see
// ConfigureProcess, core/program/process.h). Before anything is computed.
absl::StatusOr<int> TakeThreads(const TrainOptions& options,
                                const Launch& launch);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_THREADS_H_
