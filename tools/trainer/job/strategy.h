// Strategy of a job: what its settings, its layers and its partition make.

#ifndef TANDEM_TOOLS_TRAINER_JOB_STRATEGY_H_
#define TANDEM_TOOLS_TRAINER_JOB_STRATEGY_H_

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/model/layer.h"
#include "parallel/optim/update_options.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/job/partition.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// `devices` are this rank's. `world` must outlive the strategy. Collective.
absl::StatusOr<std::unique_ptr<Strategy>> MakeStrategy(
    const TrainOptions& options, const JobModel& model,
    const JobPartition& partition, const std::vector<c10::Device>& devices,
    Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_STRATEGY_H_
