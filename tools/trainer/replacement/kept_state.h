// Kept state: what a rank keeps of a job while ranks change, apart from the
// groups in which it was trained.

#ifndef TANDEM_TOOLS_TRAINER_REPLACEMENT_KEPT_STATE_H_
#define TANDEM_TOOLS_TRAINER_REPLACEMENT_KEPT_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"
#include "tools/trainer/checkpoints/job_progress.h"
#include "tools/trainer/job/job.h"

namespace tandem {

// Where a job stands, which evaluations included.
struct JobStand {
  TrainPosition position;
  // Steps that were done at the last evaluation.
  int64_t evaluated = 0;
};

// What a checkpoint would have of this rank's part of the model, in the host's
// memory.
struct KeptState {
  TrainingProgress progress;
  int64_t evaluated = 0;
  NamedTensors tensors;  // by their names in a checkpoint

  JobStand stand() const;
};

// Copies of what this rank has: replicas share nothing. Not collective: groups
// may be broken.
absl::StatusOr<KeptState> KeepState(const Job& job, const JobStand& stand);

// The state of rank `source` of `group`, which passes it as `mine`; others'
// `mine` is not looked at. `from`: whose it is, for messages. TANDEM_FAULT's
// point "take_over:I" comes before tensor I. Collective.
absl::StatusOr<KeptState> ShareState(const KeptState& mine, int source,
                                     const std::string& from,
                                     Communicator& group);

// Gives all ranks the progress and the last evaluation of rank `source` of
// `world`. Ranks of different parts of the model may have kept the same step
// with and without an evaluation, or a loss scale's update, that one of them
// was broken off in. Collective.
absl::Status ShareProgress(int source, const std::string& from,
                           Communicator& world, KeptState* state);

// Puts the job's strategy into the state. `from`: whose it is, for messages.
absl::Status LoadState(const KeptState& state, const std::string& from,
                       Job& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPLACEMENT_KEPT_STATE_H_
