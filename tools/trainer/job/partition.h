// Partition of a job's model for its devices.

#ifndef TANDEM_TOOLS_TRAINER_JOB_PARTITION_H_
#define TANDEM_TOOLS_TRAINER_JOB_PARTITION_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/loss/loss.h"
#include "core/model/layer.h"
#include "datasets/dataset.h"
#include "parallel/balance/cut.h"
#include "parallel/optim/update_options.h"
#include "parallel/schedule/activation_checkpointing.h"
#include "parallel/schedule/schedule.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

struct JobPartition {
  Schedule schedule;  // of a replica's devices
  Cuts cuts;          // between its stages; empty for a model in one piece
  // For a person, on rank 0; empty: there are none.
  std::string table;
  std::string microbatches;  // --microbatches=auto: DescribeChoice
};

// What is to be cut, and how it will run.
struct PartitionTask {
  JobModel model;
  Schedule schedule;
  // Samples of a replica's largest microbatch.
  int64_t microbatch = 1;
  // Samples that a replica evaluates at a time, in as many microbatches as the
  // schedule has; 0: none.
  int64_t evaluation_batch = 0;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever;
};

// The cuts between the schedule's stages, as --balance says, for the one of
// `tasks` whose step is predicted to be the shortest: they differ in schedule
// and microbatch alone, and there are several with --microbatches=auto, else
// one. With that flag or --balance=profile rank 0 measures the layers on a
// microbatch of `data` for each, and the others take its choice and cuts; else
// it makes one layer at a time. Collective.
absl::StatusOr<JobPartition> PartitionJob(
    const TrainOptions& options, const std::vector<PartitionTask>& tasks,
    const std::vector<c10::Device>& devices, const Dataset& data,
    Communicator& world);

// What the settings ask for: a pipeline's stages, or the parts of a replica,
// which work one after the other and so are a pipeline of one microbatch. An
// evaluation of the test set counts in what devices hold, as does what
// optimizers keep. Collective.
absl::StatusOr<JobPartition> MakePartition(
    const TrainOptions& options, const JobModel& model,
    const std::vector<c10::Device>& devices, const JobData& data,
    Communicator& world);

// What MakePartition will come to, as far as that is known before a job has
// devices and ranks. `workers`: all ranks but parameter servers.
struct PlannedPartition {
  JobPartition partition;
  int64_t microbatch = 1;  // samples of a replica's largest one
  // --balance=profile: the cuts are those of --balance=parameters.
  bool is_measured_later = false;
};
absl::StatusOr<PlannedPartition> PlanPartition(const TrainOptions& options,
                                               const JobModel& model,
                                               const JobData& data,
                                               int workers);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_PARTITION_H_
