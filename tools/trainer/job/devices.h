// Devices of a job: made, handed out, and asked how much memory they held.

#ifndef TANDEM_TOOLS_TRAINER_JOB_DEVICES_H_
#define TANDEM_TOOLS_TRAINER_JOB_DEVICES_H_

#include <c10/core/Device.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/launch/launch.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Makes all simulated devices that there can be, imagined (core/sim/imagined),
// unless it has been called before. --device_memory is no limit of theirs.
absl::Status MakeImaginedDevices();

// Gives this rank its devices, of which the first is the calling thread's
// current one from then on: makes those that are simulated, with --dry_run as
// imagined ones, and sets how GPUs compute. Before any tensor is made.
absl::StatusOr<std::vector<c10::Device>> PrepareDevices(
    const TrainOptions& options, const Launch& launch);

// The most memory that each device of the job held for each rank, and what for:
// ("sim:0", "12 MiB: parameters 8 MiB, ..."), by rank; with several ranks each
// has a copy of all. A name that another rank's device has, too, says whose:
// "cuda:0 of rank 1". Empty for the CPU. Collective.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> PeakMemory(
    const std::vector<c10::Device>& devices, Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_DEVICES_H_
