// Rehearsal of a job without values (--fake_weights): the strategy that would
// train runs on imagined devices, which compute nothing and have no memory
// (core/sim/imagined), so that a model far too large for this machine is cut,
// and what each device would hold, do and send is known.

#ifndef TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_
#define TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/launch/launch.h"
#include "core/memory/device_memory.h"
#include "core/mesh/mesh.h"
#include "core/sim/imagined/meters.h"
#include "parallel/schedule/schedule.h"
#include "tools/trainer/rehearsal/rehearsal_settings.h"
#include "tools/trainer/settings/options.h"

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
  // latter's (parallel/schedule/simulation.h).
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

// Two training steps, of which the second is timed, and one batch evaluated.
// Collective: every rank learns of the whole job. Requires what CheckRehearsal
// accepts, and a process that has no simulated devices and has computed nothing
// yet.
absl::StatusOr<RehearsedJob> RehearseJob(const RehearsalSettings& settings,
                                         const TrainOptions& options,
                                         const Launch& launch);

// The same of one replica, by this process alone, which starts no ranks: what a
// device holds, for who plans a job (--dry_run). It has the replica's devices,
// of all ranks of its pipeline; other replicas, and other ranks that share
// layers, are imagined to do what it does (the backend "alone"), and
// the devices are those of the first of these. Where nothing is trained
// (--eval_only) a batch is evaluated. `first`: the place of the first rank.
// Unimplemented where a job has what one process cannot rehearse: more devices
// than kMostRehearsedDevices, workers of parameter servers, replicas of one
// process.
absl::StatusOr<RehearsedJob> RehearseReplica(const TrainOptions& options,
                                             const Launch& first);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_
