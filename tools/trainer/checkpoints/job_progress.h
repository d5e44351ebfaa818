// Progress of a job as its checkpoints have it, whether a job can go on from
// one, and what it then does in another way than the job that saved it.

#ifndef TANDEM_TOOLS_TRAINER_CHECKPOINTS_JOB_PROGRESS_H_
#define TANDEM_TOOLS_TRAINER_CHECKPOINTS_JOB_PROGRESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/checkpoint.h"
#include "datasets/distributed_sampler.h"
#include "tools/trainer/job/job.h"

namespace tandem {

struct TrainPosition {
  int64_t step = 0;  // steps done
  SamplerState sampler;
};

// The name of the model; where a folder says what it is, its kind.
std::string ModelName(const Job& job);

TrainingProgress CurrentProgress(const Job& job, const TrainPosition& position);
TrainPosition SavedPosition(const TrainingProgress& progress);
// Position of a job that goes on from there, and whose checkpoint fits it: the
// next epoch's beginning where the training set is another one.
TrainPosition PositionIn(const Job& job, const TrainingProgress& progress);

// InvalidArgument when the checkpoint at `path` is of a job with another model,
// seed, data set, batch size or optimizer, or in the midst of an epoch of
// another training set; all but the model do not matter under --eval_only.
absl::Status CheckFits(const std::string& path,
                       const TrainingProgress& progress, const Job& job);

// The scale comes from the checkpoint, how it moves from the flags. One of a
// job that had none begins as any other.
absl::Status ResumeScale(const TrainingProgress& progress, LossScale* scale);

// InvalidArgument, on all ranks alike, when ranks have read checkpoints of
// different steps, from folders of their own hosts. Collective.
absl::Status CompareProgress(const Job& job, const std::string& path,
                             const TrainingProgress& progress);

// Settings that are others now, "--weight_decay=0.3 (0.1 then)", and a cosine
// schedule that ends elsewhere: lines for a person.
std::vector<std::string> DescribeChanges(const TrainingProgress& progress,
                                         const Job& job);

// What the checkpoint's training set is otherwise than this job's, for a
// person: "sample_shape 3x32x32 there, 3x224x224 here"; empty: nothing.
std::string DataDifferences(const TrainingProgress& progress, const Job& job);

// `status`, of an optimizer that has no place for what the checkpoint at `path`
// has of one, or lacks it: with the flags that say so.
absl::Status ExplainOptimizerState(const absl::Status& status,
                                   const std::string& path,
                                   const TrainingProgress& progress,
                                   const Job& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_CHECKPOINTS_JOB_PROGRESS_H_
