// Pending step: a training step that the host has issued, and of which it has
// not read yet what it came to.

#ifndef TANDEM_PARALLEL_STEP_PENDING_STEP_H_
#define TANDEM_PARALLEL_STEP_PENDING_STEP_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/training_step.h"
#include "parallel/step/step_score.h"

namespace tandem {

struct PendingStep {
  struct Times {
    PipelineMoments moments;
    int64_t samples = 0;    // of this replica
    bool is_whole = false;  // has all of the schedule's microbatches
  };

  // Of all gradients.
  struct Norm {
    std::optional<double> known;  // to all ranks; else what this rank has:
    // Places of parameters among the model's, and of each the sum of its
    // gradient's squares, in the order of all the tensors' elements.
    std::vector<int64_t> places;
    std::vector<at::Tensor> squares;
  };

  int64_t number = 0;  // from 1
  bool alike = true;   // are replicas, after it?
  StepLosses losses;   // this rank's
  // DeviceLossScale's verdict; undefined: there is none, or it is known.
  at::Tensor found_inf;
  std::optional<ScaledStep> scaled;
  Times times;
  std::optional<Norm> norm;  // nothing: it is not measured
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_PENDING_STEP_H_
