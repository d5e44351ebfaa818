// Training step of a pipeline: what its samples weigh, what becomes of its
// gradients, and what its losses come to; and the results of a forward pass
// alone.

#ifndef TANDEM_PARALLEL_PIPELINE_TRAINING_STEP_H_
#define TANDEM_PARALLEL_PIPELINE_TRAINING_STEP_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/context/compute_context.h"
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/model/batch.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// Gradient reduction of a pipeline stage: how its gradients become those of the
// whole batch, of which other replicas compute a part. It is told what the
// stage does. Prepare is called by one thread between steps; the rest by the
// thread of the stage's device. Collective over the replicas of the stage,
// which run the same schedule.
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

// What becomes of a training step's gradients, on the threads of their devices.
struct StepGradients {
  // By stage, told of each action that adds to its gradients, and waited for
  // (StageGradients::Finish) after the last action of its device. Null: they
  // are complete then. Empty: all null.
  std::vector<StageGradients*> of_stages;
  // Afterwards, while other devices may still work; null: nothing.
  std::function<absl::Status(int schedule_device)> after_device = nullptr;
  // How many microbatches the replica has that has the most, and this one's
  // part, in the schedule's order, in actions on those that it lacks. Null:
  // none.
  int microbatches = 0;
  std::function<absl::Status(const Action& action)> on_missing = nullptr;
  // By this rank's devices, a number on each: gradients are so many times as
  // great as the loss's; who takes them unscales them. Losses are reported as
  // they are. Empty: they are not scaled.
  std::vector<at::Tensor> loss_scales = {};
  // The host does not wait for the devices to know the scores: what lies there
  // stays there.
  bool defers_scores = false;
};

// Where a step's samples stand among those of its whole batch, of which other
// replicas may compute the rest.
struct StepSamples {
  std::optional<Samples> samples;  // of the first microbatch
  // A microbatch's loss weighs as many of so many samples; 0: of the step's.
  double of = 0;
  // By microbatch, where the last stage is and the loss function has a weight:
  // what its loss weighs instead. Losses that layers add weigh by samples.
  std::vector<double> loss_parts = {};
};

// The losses of a step, as far as this rank has computed them, and as they were
// left: numbers that lie on devices are read later.
struct StepLosses {
  // By microbatch; empty ones where the last stage is not. In full but for
  // StepGradients::defers_scores.
  std::vector<DeferredScore> scores;
  // What layers and the loss function have added, each with its pass's weight.
  std::vector<LossTerm> terms;
};

// What a pipeline's forward-only pass gives.
struct Inference {
  // Where the last stage is; elsewhere empty.
  Score score;  // of batches with targets
  // The last layer's, by microbatch; what the loss takes beside it is not
  // given.
  std::vector<at::Tensor> outputs;
  // Named sums that layers here, and the loss function, have added.
  std::vector<LossTerm> sums;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_TRAINING_STEP_H_
