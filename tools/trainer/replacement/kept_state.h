// Kept state: what a rank has of a job, apart from the groups in which it was
// trained, and how the others take it over.

#ifndef TANDEM_TOOLS_TRAINER_REPLACEMENT_KEPT_STATE_H_
#define TANDEM_TOOLS_TRAINER_REPLACEMENT_KEPT_STATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/checkpoint/checkpoint.h"
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

// What a checkpoint would have, in the host's memory.
struct KeptState {
  TrainingProgress progress;
  int64_t evaluated = 0;
  NamedTensors tensors;  // by their names in a checkpoint

  JobStand stand() const;
};

// Copies. Whole on each rank: for replicas in one piece that share nothing of
// the optimizer. Not collective: groups may be broken.
absl::StatusOr<KeptState> KeepState(const Job& job, const JobStand& stand);

// The state of rank `source` of `world`, whose own it is; others' `mine` is not
// looked at. TANDEM_FAULT's point "take_over:I" comes before tensor I.
// Collective.
absl::StatusOr<KeptState> ShareState(const KeptState& mine, int source,
                                     Communicator& world);

// Puts the job's strategy into it. `from`: whose it is, for messages.
absl::Status LoadState(const KeptState& state, const std::string& from,
                       Job& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPLACEMENT_KEPT_STATE_H_
