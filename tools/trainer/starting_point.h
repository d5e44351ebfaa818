// Starting point of a job: a checkpoint, given weights, the beginning, or what
// ranks have that were there before.

#ifndef TANDEM_TOOLS_TRAINER_STARTING_POINT_H_
#define TANDEM_TOOLS_TRAINER_STARTING_POINT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/tensor_stream.h"
#include "tools/trainer/checkpoints/job_progress.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/replacement/replacement.h"
#include "tools/trainer/run_report.h"

namespace tandem {

// Removes from --save_dir what killed jobs left of saves, and says so. For rank
// 0; others do nothing.
void RemoveLeftovers(const Job& job, RunReport& report);

struct JobStart {
  // The position in the checkpoint that the job goes on from; none: it goes on
  // from another rank's state, or from nothing.
  std::optional<TrainPosition> resumed;
  std::string checkpoint;  // that checkpoint; empty: there is none
  JobStand stand;
};

// What loading the weights of --init_from will do to a model of these tensors,
// whole ones, for a person. Reads what tensors there are, and no values;
// refuses as FindStart does. Requires the job's options and transformer.
absl::StatusOr<std::string> PlanInitialWeights(
    const Job& job, const std::vector<TensorInfo>& model);

// Checkpoints of steps that this job has yet to do, as this process sees them,
// would be taken for its own: FailedPrecondition. `said`: a line about those
// that are its own.
absl::Status CheckLaterCheckpoints(const Job& job, const JobStart& start,
                                   std::string* said);

// Loads what --resume names; where that is nothing, the weights of --init_from.
// Which job it is, Job::id, is known from here on. FailedPrecondition where
// --save_dir has checkpoints of another job's later steps.
// With `replacement` it takes over what other ranks have, if some were there
// before, and can from here on go on without one. Says what was loaded.
// Collective.
absl::StatusOr<JobStart> FindStart(Job& job, RunReport& report,
                                   Replacement* replacement = nullptr);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_STARTING_POINT_H_
