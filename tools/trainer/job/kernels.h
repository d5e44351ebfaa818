// Kernels of a job: the fastest by timing, or those of a fixed rule.

#ifndef TANDEM_TOOLS_TRAINER_JOB_KERNELS_H_
#define TANDEM_TOOLS_TRAINER_JOB_KERNELS_H_

#include <memory>

#include "core/autotune/job_kernels.h"
#include "core/comm/communicator.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// --kernels, and what follows from --reproducible: null where a rule decides,
// or where rank 0's host has no place to keep what was measured (a warning says
// why). Collective.
std::unique_ptr<JobKernels> KernelsOf(const TrainOptions& options,
                                      Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_KERNELS_H_
