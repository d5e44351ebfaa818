// Rehearsal of a job without values (--fake_weights): the strategy that would
// train runs on imagined devices, which compute nothing and have no memory
// (core/sim/imagined), so that a model far too large for this machine is cut,
// and what each device would hold, do and send is known.

#ifndef TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_
#define TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_

#include "absl/status/statusor.h"
#include "core/launch/launch.h"
#include "tools/trainer/rehearsal/rehearsal_settings.h"
#include "tools/trainer/rehearsal/rehearsed_job.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Two training steps, of which the second is timed, and one batch evaluated.
// Collective: every rank learns of the whole job. Requires what CheckRehearsal
// accepts, and a process that has no simulated devices and has computed nothing
// yet.
absl::StatusOr<RehearsedJob> RehearseJob(const RehearsalSettings& settings,
                                         const TrainOptions& options,
                                         const Launch& launch);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_H_
