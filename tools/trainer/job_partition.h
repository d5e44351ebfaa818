// Where a job cuts its model for its devices.

#ifndef TANDEM_TOOLS_TRAINER_JOB_PARTITION_H_
#define TANDEM_TOOLS_TRAINER_JOB_PARTITION_H_

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/communicator.h"
#include "core/layer.h"
#include "datasets/dataset.h"
#include "parallel/cut.h"
#include "parallel/schedule.h"
#include "tools/trainer/options.h"

namespace tandem {

struct JobPartition {
  Cuts cuts;
  std::string table;  // for a person; empty on ranks other than 0
};

// The cuts between the schedule's stages, as --balance or --cut says. With
// --balance=profile rank 0 measures the layers on a microbatch of `data`, and
// the others take its cuts. Collective.
absl::StatusOr<JobPartition> PartitionJob(
    const TrainOptions& options, const LayerSpecs& specs,
    const Schedule& schedule, const std::vector<c10::Device>& devices,
    const Dataset& data, Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_PARTITION_H_
