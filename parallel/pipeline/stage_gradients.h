// Gradient reduction of a pipeline stage: how its gradients become those of the
// whole batch, of which other replicas compute a part.

#ifndef TANDEM_PARALLEL_PIPELINE_STAGE_GRADIENTS_H_
#define TANDEM_PARALLEL_PIPELINE_STAGE_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/status.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// Told what the stage does. Prepare is called by one thread between steps; the
// rest by the thread of the stage's device. Collective over the replicas of the
// stage, which run the same schedule.
class StageGradients {
 public:
  StageGradients() = default;
  virtual ~StageGradients() = default;
  StageGradients(const StageGradients&) = delete;
  StageGradients& operator=(const StageGradients&) = delete;

  // A step begins; no parameter has a gradient.
  virtual absl::Status Prepare() = 0;

  // Before and after an action that adds to gradients; `last`: after it the
  // stage's own are complete.
  virtual absl::Status Before(const Action& action, bool last) = 0;
  virtual absl::Status After(const Action& action, bool last) = 0;

  // Before After() of a kBackwardInput: of `weights` gradients were left, which
  // the kBackwardWeight of its microbatch will give.
  virtual void AwaitWeights(const std::vector<at::Tensor>& weights) {
    static_cast<void>(weights);
  }

  // Within the last action, when what is left of it are gradients of weights
  // that layers had left for later (core/model/weight_gradient_sink.h): each
  // parameter then gets one once at most, complete.
  virtual absl::Status BeforeWeights(const Action& action) {
    static_cast<void>(action);
    return absl::OkStatus();
  }

  // Waits until the parameters' gradients are those of the whole batch.
  virtual absl::Status Finish() = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_STAGE_GRADIENTS_H_
