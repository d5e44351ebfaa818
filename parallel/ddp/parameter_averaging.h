// Replicas that train on their own and take the mean of their parameters now
// and then (local SGD).

#ifndef TANDEM_PARALLEL_DDP_PARAMETER_AVERAGING_H_
#define TANDEM_PARALLEL_DDP_PARAMETER_AVERAGING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/ddp/options.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

// Every rank's parameters become their mean (divided, then summed), the same
// bits on all ranks. One all-reduce a buffer, in place. Parameters that no rank
// has trained change by rounding at most, and not at all for 1, 2, 4, ...
// ranks. Optimizer state and the model's buffers stay each rank's own, as in
// PyTorch. With parameters_to_ignore, give Replica::averaged_flat_buffers():
// ignored parameters may be of another size on each rank.
//
// Errors of Communicator. After one, parameters may differ between ranks.
absl::Status AverageParameters(const FlatBufferList& buffers,
                               Communicator& group);

// Decides after which steps parameters are averaged: steps count from 0, and
// step s is followed by an averaging when s >= warmup_steps and
// s - warmup_steps is a multiple of `period`. So the first step after the
// warm-up is; with an outer optimizer, whose steps are all of `period` inner
// ones (DiLoCo), it is the period-th.
//
// While in_warmup(), post-local SGD (Lin et al., arXiv:1808.07217) averages
// gradients in every step, as DistributedDataParallel does; afterwards each
// rank trains on its own gradients (no_sync). Before evaluating or saving
// replicas that have gone apart, call AverageParameters: it is one averaging
// more, unless each rank keeps its values and goes on from them
// (Strategy::Synchronise does).
//
// Not thread-safe.
class PeriodicParameterAverager {
 public:
  // InvalidArgument unless period >= 1, warmup_steps >= 0, and of an outer
  // optimizer learning_rate > 0 and 0 <= momentum < 1.
  static absl::StatusOr<PeriodicParameterAverager> Create(
      const ParameterAveragingOptions& options);

  // To be called after each optimizer step, by every rank: averages if this
  // step asks for it. Collective then. The outer optimizer's step is the
  // caller's.
  absl::Status AfterStep(const FlatBufferList& buffers, Communicator& group);

  // Whether the coming call of AfterStep will average.
  bool averages_now() const;
  bool in_warmup() const { return step_ < options_.warmup_steps; }

  // How often AfterStep was called. A job that resumes sets what it had.
  int64_t step() const { return step_; }
  void set_step(int64_t step) { step_ = step; }

 private:
  explicit PeriodicParameterAverager(const ParameterAveragingOptions& options)
      : options_(options) {}

  ParameterAveragingOptions options_;
  int64_t step_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_PARAMETER_AVERAGING_H_
