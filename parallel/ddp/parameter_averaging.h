// Parameter averaging (local SGD): replicas train on their own and take the
// mean of their parameters now and then, or make it an outer optimizer's step
// (DiLoCo).

#ifndef TANDEM_PARALLEL_DDP_PARAMETER_AVERAGING_H_
#define TANDEM_PARALLEL_DDP_PARAMETER_AVERAGING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/checkpoint/stored_tensors.h"
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

// DiLoCo's outer optimizer: SGD with Nesterov momentum on the averaged
// difference that replicas have made while they trained apart.
//
// Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language
// Models", arXiv:2311.08105; torchft's DiLoCo. With the global values x of the
// last outer step, and the mean y of all replicas' values:
//
//   gradient = x - y
//   momentum = outer_momentum * momentum + gradient
//   x = x - outer_learning_rate * (gradient + outer_momentum * momentum)
//
// (torch.optim.SGD with nesterov; without momentum, x - rate * gradient.) All
// replicas go on from x. Rate 1 without momentum is plain averaging, within
// rounding: x - (x - y).
//
// Two flat buffers more, one without momentum. Global values and momentum are
// state, "PARAMETER.outer_value" and "PARAMETER.outer_momentum_buffer", the
// same on all replicas. Not thread-safe.
class OuterOptimizer {
 public:
  // `buffers`, those that are averaged, must outlive it.
  OuterOptimizer(const OuterOptimizerOptions& options,
                 const FlatBufferList& buffers);

  // Before the first step in which replicas train apart: what they have now,
  // which is the same on all, are the global values. Later calls do nothing.
  void Begin();
  // Requires that the buffers' values are the replicas' mean, and Begin.
  void Step();

  // Nothing before Begin.
  NamedTensors State() const;
  // Whether a state of that name is an outer optimizer's.
  static bool Has(const std::string& state_name);
  // Takes all of `state` that Has. InvalidArgument for a name without a place,
  // a wrong shape or dtype, or a part missing. Without any, the next Begin
  // begins anew.
  absl::Status CheckState(const StoredTensors& state) const;
  absl::Status LoadState(const StoredTensors& state);

 private:
  struct Part {
    FlatBuffer* buffer;
    at::Tensor values;    // global
    at::Tensor momentum;  // undefined: none is kept
  };

  NamedTensors AllState() const;

  OuterOptimizerOptions options_;
  std::vector<Part> parts_;
  bool begun_ = false;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_PARAMETER_AVERAGING_H_
