// Process of a rank: its share of the host's cores, its connection with the
// other ranks, and the kernels that it computes with.

#ifndef TANDEM_TOOLS_TRAINER_JOB_PROCESS_H_
#define TANDEM_TOOLS_TRAINER_JOB_PROCESS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/autotune/job_kernels.h"
#include "core/comm/communicator.h"
#include "core/launch/launch.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Sets this process up for so many threads of operators as it gives (and see
// ConfigureProcess, core/program/process.h). Before anything is computed.
absl::StatusOr<int> TakeThreads(const TrainOptions& options,
                                const Launch& launch);

// Connects this rank with the others, which compare their settings before
// anything else is done. Collective.
absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const TrainOptions& options, const Launch& launch);

// --kernels, and what follows from --reproducible: null where a rule decides,
// or where rank 0's host has no place to keep what was measured (a warning says
// why). Collective.
std::unique_ptr<JobKernels> KernelsOf(const TrainOptions& options,
                                      Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_PROCESS_H_
