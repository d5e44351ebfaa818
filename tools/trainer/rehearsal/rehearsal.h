// Rehearsal of a job without values (--fake_weights): the strategy that would
// train runs on imagined devices, which compute nothing and have no memory
// (core/sim/imagined), so that a model far too large for this machine is cut,
// and what each device would hold and do is known.

#ifndef TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_
#define TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/launch/launch.h"
#include "core/memory/memory_use.h"
#include "core/sim/imagined/work_meter.h"
#include "parallel/schedule/schedule.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Of the flags, once they are parsed.
struct RehearsalSettings {
  bool fake_weights = false;
  double memory_bandwidth = 0;  // bytes a second of a device; 0: without end
};
RehearsalSettings RehearsalSettingsFromFlags();

// Whether what was given goes together; InvalidArgument names the flags.
absl::Status CheckRehearsal(const RehearsalSettings& settings,
                            const TrainOptions& options, int world_size);

// What one training step comes to on a device.
struct RehearsedDevice {
  std::string name;
  MemoryUse peak;
  sim::DeviceWork work;
};

struct RehearsedJob {
  std::vector<RehearsedDevice> devices;
  std::string partition;  // where the model was cut, for a person
  double forward = 0;     // of a step, in seconds; of the busiest device
  double step = 0;        // from the first microbatch to the update's end
  double bubble = 0;      // as papers count
};

// Two training steps, of which the second is timed, and one batch evaluated,
// all of this process's devices. For a process that has no devices yet.
absl::StatusOr<RehearsedJob> RehearseJob(const RehearsalSettings& settings,
                                         const TrainOptions& options,
                                         const Launch& launch);

// The same as a table. ResourceExhausted, behind it, where a device would need
// more than --device_memory.
absl::Status Rehearse(const RehearsalSettings& settings,
                      const TrainOptions& options, const Launch& launch);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_
