// Rehearsal of a job without values (--fake_weights): the strategy that would
// train runs on imagined devices, which compute nothing and have no memory
// (core/sim/imagined), so that a model far too large for this machine is cut,
// and what each device would hold and do is known.

#ifndef TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_
#define TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/launch/launch.h"
#include "core/memory/memory_use.h"
#include "core/sim/imagined/work_meter.h"
#include "tools/trainer/rehearsal/rehearsal_settings.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

struct RehearsedDevice {
  std::string name;
  MemoryUse peak;        // when it held the most
  sim::DeviceWork work;  // of one training step
};

struct RehearsedJob {
  std::vector<RehearsedDevice> devices;
  std::string partition;  // where the model was cut, for a person
  // From the first microbatch to the update's end, in seconds; 0 where devices
  // have no speed.
  double step = 0;
  // The step's compute beyond that of the busiest device, as a part of the
  // latter's (parallel/schedule/prediction.h).
  double bubble = 0;
};

// Two training steps, of which the second is timed, and one batch evaluated.
// Requires what CheckRehearsal accepts, and a process that has no simulated
// devices and has computed nothing yet.
absl::StatusOr<RehearsedJob> RehearseJob(const RehearsalSettings& settings,
                                         const TrainOptions& options,
                                         const Launch& launch);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_
