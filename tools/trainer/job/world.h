// Connection of a job's ranks.

#ifndef TANDEM_TOOLS_TRAINER_JOB_WORLD_H_
#define TANDEM_TOOLS_TRAINER_JOB_WORLD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/launch/launch.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Connects this rank with the others, which compare their settings before
// anything else is done. Collective.
absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const TrainOptions& options, const Launch& launch);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_WORLD_H_
