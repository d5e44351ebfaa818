// Data sets of a job.

#ifndef TANDEM_TOOLS_TRAINER_JOB_DATA_H_
#define TANDEM_TOOLS_TRAINER_JOB_DATA_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/model/batch.h"
#include "datasets/dataset.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

struct JobData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;  // maybe of size 0
  // What tells the training set from another, by name: how many samples it has,
  // of which shape and of how many classes, and its digest, if it has one.
  std::map<std::string, std::string> identity;

  // Whether there is anything to evaluate.
  bool has_test() const { return test->size() > 0; }
};

inline constexpr char kTrainingSamples[] = "training_samples";

// InvalidArgument for --eval_only without a test set, and for
// --misclassified_images without one of images.
absl::Status CheckTestSet(const TrainOptions& options, const JobData& data);

// Opens both. Token files that do not say their vocabulary have that of
// `transformer`, the job's, where a folder says what it is.
absl::StatusOr<JobData> OpenOwnData(
    const TrainOptions& options, const std::optional<Transformer>& transformer);

// The same. Ranks compare what they have: hosts may have files of their own.
// With CheckTestSet. Collective.
absl::StatusOr<JobData> OpenData(const TrainOptions& options,
                                 const std::optional<Transformer>& transformer,
                                 Communicator& world);

// The first `size` samples, or all that there are.
absl::StatusOr<Batch> FirstSamples(const Dataset& data, int64_t size);

// The options' number; unless they have one, as many as the replica has of a
// step (`training`), since memory is no more then than in training. Two kinds
// of `test` differ:
//   Small samples, but not of tokens: so many that their inputs take a MiB, 256
//   at most, for each batch ends with a wait for its device, which takes longer
//   than a few samples do.
//   Tokens where nothing is trained, so that nobody has tried `training`: no
//   more than have logits of 256 MiB, one at least.
int64_t EvaluationBatchSize(const TrainOptions& options, int64_t training,
                            const Dataset& test);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_DATA_H_
