// What a job trains with: model, optimizer and devices, put together.

#ifndef TANDEM_TOOLS_TRAINER_JOB_JOB_STRATEGY_H_
#define TANDEM_TOOLS_TRAINER_JOB_JOB_STRATEGY_H_

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "datasets/dataset.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

struct JobStrategy {
  std::unique_ptr<Strategy> strategy;
  // Where the model was cut, for a person; empty where it was not, and on ranks
  // other than 0.
  std::string partition;
};

// `devices` are this rank's. `world` must outlive the strategy. Collective.
absl::StatusOr<JobStrategy> MakeJobStrategy(
    const TrainOptions& options, const std::vector<c10::Device>& devices,
    const Dataset& data, Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_JOB_STRATEGY_H_
