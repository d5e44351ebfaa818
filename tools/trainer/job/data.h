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

// Opens both. Token files that do not say their vocabulary have that of
// `transformer`, the job's, where a folder says what it is. InvalidArgument for
// --eval_only without a test set. Ranks compare what they have: hosts may have
// files of their own. Collective.
absl::StatusOr<JobData> OpenData(const TrainOptions& options,
                                 const std::optional<Transformer>& transformer,
                                 Communicator& world);

// The first `size` samples, or all that there are.
absl::StatusOr<Batch> FirstSamples(const Dataset& data, int64_t size);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_DATA_H_
