// Pending step: a training step that the host has issued, and of which it has
// not read yet what it came to.

#ifndef TANDEM_PARALLEL_STEP_PENDING_STEP_H_
#define TANDEM_PARALLEL_STEP_PENDING_STEP_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/loss/deferred_score.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/step/step_score.h"

namespace tandem {

struct PendingStep {
  // A loss, or a named sum, that one microbatch of this rank added.
  struct Part {
    std::string name;
    int64_t microbatch = 0;  // among those of all replicas
    double factor = 0;       // its share of the step's samples; of a sum 1
    at::Tensor loss = {};    // on its stage's device
    bool is_sum = false;
  };

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

  int64_t number = 0;                 // from 1
  bool alike = true;                  // are replicas, after it?
  std::vector<DeferredScore> scores;  // by microbatch; where the last stage is
  std::vector<Part> parts;
  // DeviceLossScale's verdict; undefined: there is none, or it is known.
  at::Tensor found_inf;
  std::optional<ScaledStep> scaled;
  Times times;
  std::optional<Norm> norm;  // nothing: it is not measured
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_PENDING_STEP_H_
