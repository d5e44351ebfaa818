// Misclassified samples: images that a model takes for another class, shown
// while it trains (--misclassified_images).

#ifndef TANDEM_TOOLS_TRAINER_EVALUATION_MISCLASSIFIED_H_
#define TANDEM_TOOLS_TRAINER_EVALUATION_MISCLASSIFIED_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "core/tensorboard/summary.h"
#include "datasets/dataset.h"
#include "tools/trainer/job/job.h"

namespace tandem {

struct Misclassified {
  int64_t sample = 0;     // its number in the data set
  int64_t target = 0;     // its class
  int64_t predicted = 0;  // the greatest logit's, the first of equals
  at::Tensor input;
};

// The first `most` misclassified ones among the first `samples` samples of
// `data`, in their order: what comes behind is not looked at. `layers` are a
// model in evaluation mode, on the CPU. Ends early where a signal asks the
// process to stop. InvalidArgument for a model that gives no logit for each
// class, and for samples of other than one class; else the errors of `data`, of
// layers, and of further inputs.
absl::StatusOr<std::vector<Misclassified>> FindMisclassified(
    const LayerList& layers, const Dataset& data, int64_t samples,
    int64_t most);

// The images misclassified/1, misclassified/2, ... of `found`, and the text
// misclassified, a table with the number and both classes of each. Errors of
// InputPixels.
absl::StatusOr<Summary> MisclassifiedSummary(
    const std::vector<Misclassified>& found, const Dataset& data);

// What a job's model misclassifies of its test set, found with a copy of the
// model on rank 0 (model_copy.h). Every rank has one, and calls the same
// methods. Not thread-safe.
class MisclassifiedImages {
 public:
  // For a job that is set up, whose test set has images (CheckTestSet), of
  // which the first `samples` count. InvalidArgument, on every rank alike, for
  // a model that FindMisclassified refuses. Collective.
  static absl::StatusOr<std::unique_ptr<MisclassifiedImages>> Create(
      Job& job, int64_t samples);

  // By the weights that the job evaluates now: a summary on rank 0, unless a
  // signal has asked to stop, and an empty one on others. Collective.
  absl::StatusOr<Summary> Find();

 private:
  MisclassifiedImages(Job& job, int64_t samples)
      : job_(job), samples_(samples) {}

  absl::Status Prepare();
  absl::StatusOr<Summary> FindInCopy() const;

  Job& job_;
  const int64_t samples_;
  LayerList layers_;  // on rank 0
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_EVALUATION_MISCLASSIFIED_H_
