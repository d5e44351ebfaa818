// Rehearsed job: what each device of it would hold, do and send.

#ifndef TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSED_JOB_H_
#define TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSED_JOB_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/memory/device_memory.h"
#include "core/sim/imagined/meters.h"

namespace tandem {

class Communicator;

struct RehearsedDevice {
  std::string name;
  MemoryUse peak;              // when it held the most
  sim::DeviceWork work;        // of one training step
  sim::DeviceTraffic traffic;  // of the same step
};

struct RehearsedJob {
  std::vector<RehearsedDevice> devices;  // rank 0's, rank 1's, ...
  std::string partition;  // where the model was cut, for a person
  // From the first microbatch to the update's end, in seconds; 0 where devices
  // have no speed.
  double step = 0;
  // The step's compute beyond that of the busiest device, as a part of the
  // latter's (parallel/schedule/prediction.h).
  double bubble = 0;
  // What of the step is waited for collectives.
  double waited = 0;
};

// Every rank's devices, as many each, in the ranks' order. Collective.
absl::StatusOr<std::vector<RehearsedDevice>> GatherDevices(
    const std::vector<RehearsedDevice>& mine, Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSED_JOB_H_
