// Resuming: a job goes on from a checkpoint.

#ifndef TANDEM_TOOLS_TRAINER_CHECKPOINTS_RESUME_H_
#define TANDEM_TOOLS_TRAINER_CHECKPOINTS_RESUME_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/tensor_stream.h"
#include "tools/trainer/checkpoints/job_progress.h"
#include "tools/trainer/job/job.h"

namespace tandem {

// What --resume takes instead of a path.
inline constexpr char kResumeAuto[] = "auto";

struct Resumed {
  // None: there is no checkpoint that --resume=auto could take.
  std::optional<TrainPosition> position;
  std::string path;  // of the checkpoint
  std::string job;   // that saved it (TrainingProgress::job)
  std::vector<std::string>
      lines;  // for a person: which one, which not, and why
};

// Loads the checkpoint that --resume names into the job, as rank 0 sees it: a
// folder, a file, or the newest of a folder of checkpoints that is complete and
// as it was written; of those that are not a line says why. --resume=auto is
// that of --save_dir, and begins anew where there is none.
//
// Every rank reads what it has a part of, and verifies all of that first; when
// one of them refuses, all do, and nothing was changed. DataLoss when the one
// checkpoint that was named was damaged since it was written;
// FailedPrecondition, naming what is there, when there are checkpoints and none
// of them can be used: to begin anew, or to go on from a much older one, is for
// a person to decide. InvalidArgument when it is of a job that this one is not
// (CheckFits), or of another step on another rank. Optimizer state that has no
// place here is refused by name. Collective.
absl::StatusOr<Resumed> ResumeJob(Job& job);

// What ResumeJob will load into a model of these tensors, whole ones, as this
// process sees it, and how far that is. Reads manifests, and no values; refuses
// as ResumeJob does, as far as they tell. Requires the job's options, data and
// transformer.
absl::StatusOr<Resumed> PlanResume(const Job& job,
                                   const std::vector<TensorInfo>& model);

// Puts the job's strategy into the state of a checkpoint that fits it. `from`:
// whose it is, for messages.
absl::Status LoadCheckpoint(const StoredCheckpoint& checkpoint,
                            const std::string& from, Job& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_CHECKPOINTS_RESUME_H_
