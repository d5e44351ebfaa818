// Process of a rank: its share of the host's cores, its connection with the
// other ranks, whose settings must be the same, and the kernels that it
// computes with.

#ifndef TANDEM_TOOLS_TRAINER_JOB_PROCESS_H_
#define TANDEM_TOOLS_TRAINER_JOB_PROCESS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/agreement/agreement.h"
#include "core/autotune/job_kernels.h"
#include "core/comm/communicator.h"
#include "core/launch/launch.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// A flag that may differ between ranks, and why.
struct PerRankFlag {
  const char* name;
  const char* reason;
};

// All flags that may differ; docs/launching.md shows them.
absl::Span<const PerRankFlag> PerRankFlags();

// What CommunicatorOptions::settings takes: every flag of this program that is
// not among them, with its value, as "--seed"; one without a default is left
// out where it is not given. Of a schedule's file it is what the file says,
// line by line, and not its path, which may differ between hosts. With
// --reproducible --intra_op_threads is compared as well: it shows in the bits.
// Call after the command line was parsed. An error where the schedule's file
// cannot be read.
absl::StatusOr<NamedValues> JobSettings();

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
std::unique_ptr<JobKernels> MakeJobKernels(const TrainOptions& options,
                                           Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_PROCESS_H_
