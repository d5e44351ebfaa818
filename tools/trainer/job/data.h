// Data sets of a job.

#ifndef TANDEM_TOOLS_TRAINER_JOB_DATA_H_
#define TANDEM_TOOLS_TRAINER_JOB_DATA_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "datasets/dataset.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

struct JobData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
};

// Opens both. Ranks compare what they have: hosts may have files of their own.
// Collective.
absl::StatusOr<JobData> OpenData(const TrainOptions& options,
                                 Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_DATA_H_
