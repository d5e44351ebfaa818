// Dry run of a job (--dry_run): all that can be checked of it without training,
// and what it will come to.

#ifndef TANDEM_TOOLS_TRAINER_DRY_RUN_DRY_RUN_H_
#define TANDEM_TOOLS_TRAINER_DRY_RUN_DRY_RUN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/launch/launch.h"
#include "tools/trainer/dry_run/disk_estimate.h"
#include "tools/trainer/dry_run/job_plan.h"
#include "tools/trainer/dry_run/memory_estimate.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// For a person: lines of what the job is, and a table of its devices' memory.
std::vector<std::string> DescribeDryRun(const JobPlan& plan,
                                        const MemoryEstimate& memory,
                                        const DiskEstimate& disk,
                                        const absl::Status& fits);

// Checks the job of these flags, which CheckJob accepts: data, model, layout,
// where it starts, files that it will write, disk and memory. Prints what it
// comes to, where `first`, the place of the first rank that would be started,
// is the job's first, also where devices or the disk have too little room.
// Refuses what the job would refuse; makes and changes nothing. Takes this
// process's devices for it: to be called once.
absl::Status DryRun(const TrainOptions& options, const Launch& first);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_DRY_RUN_DRY_RUN_H_
