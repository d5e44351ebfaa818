// Rehearsed job: what each device of it would hold, do and send.

#ifndef TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSED_JOB_H_
#define TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSED_JOB_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/memory/device_memory.h"
#include "core/mesh/mesh.h"
#include "core/sim/imagined/meters.h"
#include "parallel/schedule/schedule.h"

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

// Sets `job`'s times. A device's work and what it receives are shared out
// evenly among its stages' microbatches; devices wait for each other as the
// schedule, one replica's, says; behind it come the longest wait for
// collectives and the longest update. Requires as many devices on each rank of
// the mesh.
absl::Status PredictStep(const Schedule& schedule, const Mesh& mesh,
                         RehearsedJob* job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSED_JOB_H_
