// Options of data parallelism, under PyTorch's names: of
// DistributedDataParallel, and of local SGD.

#ifndef TANDEM_PARALLEL_DDP_OPTIONS_H_
#define TANDEM_PARALLEL_DDP_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/precision/mixed_precision.h"

namespace tandem {

struct DistributedDataParallelOptions {
  // Every rank takes rank 0's buffers (BatchNorm's running statistics) before
  // each forward that is averaged.
  bool broadcast_buffers = true;
  // Construction checks that ranks have the same model, and gives them rank 0's
  // values. Off: the caller sees to both.
  bool init_sync = true;
  // A bucket is full when it holds this many MiB. Unset: 25, and 1 for the
  // first one, so that it starts early.
  std::optional<double> bucket_cap_mb;
  // The same for the first bucket, the second, ...; the last value serves all
  // further ones. Empty: bucket_cap_mb says.
  std::vector<double> bucket_cap_mb_list;
  // Allows parameters that a step does not use on some ranks, or on none: the
  // former take the mean, with zeros from where they were not used, the latter
  // keep no gradient. Costs one small all-reduce a step; the graph is not
  // walked.
  bool find_unused_parameters = false;
  // Always so here: gradients are views of the flat buffers that the
  // collectives work on. Off is refused.
  bool gradient_as_bucket_view = true;
  // Every step uses the same parameters as often: allows what uses a parameter
  // several times in one backward (re-entrant activation checkpointing), and
  // parameters that are never used, at no cost after the first step. The first
  // step does not overlap.
  bool static_graph = false;
  // These parameters are averaged together, in one piece, when the gradient of
  // `param_to_hook_all_reduce` is ready. One without a gradient by then counts
  // as zero; one that gets it when they are on their way is an error of
  // Backward. Both or none.
  std::vector<std::string> delay_all_reduce_named_params;
  std::string param_to_hook_all_reduce;
  // What no rank used in the first step is not averaged in later ones, and must
  // stay unused.
  bool skip_all_reduce_unused_params = false;
  // Neither checked, nor copied, nor averaged; still among flat_buffers(), so
  // that an optimizer trains them on each rank by itself, but not among
  // averaged_flat_buffers(): a norm of all gradients differs between ranks, and
  // averaged parameters clipped by it would too. PyTorch:
  // _set_params_and_buffers_to_ignore_for_model. Buffers may be named too.
  std::vector<std::string> parameters_to_ignore;
  // Forward runs under autocast, and what travels may have another dtype than
  // gradients (by a communication hook, which excludes one of the user's).
  // PyTorch's _MixedPrecision, but that parameters stay fp32, as do gradients
  // and the optimizer: docs/training.md.
  MixedPrecision mixed_precision;
  // PyTorch's parameter groups: parameters for which this gives different
  // numbers share no flat buffer, so that each group can have an optimizer of
  // its own (flat_buffers_of). Not negative; of a tied weight, which has
  // several names, the greatest of any. Null: all in group 0.
  std::function<int64_t(const std::string& name)> optimizer_group;
};

// DiLoCo's (parameter_averaging.h).
struct OuterOptimizerOptions {
  double learning_rate = 0.7;
  double momentum = 0.9;  // Nesterov's; 0: none
};

// Names, meaning and defaults of PyTorch's PeriodicModelAverager, except that
// `period` has no default there.
struct ParameterAveragingOptions {
  int64_t period = 1;        // steps from one averaging to the next
  int64_t warmup_steps = 0;  // first steps, after which nothing is averaged
  // If set, what replicas come to is not taken as it is. Averagings then come
  // after each `period` steps apart, not after the first.
  std::optional<OuterOptimizerOptions> outer = std::nullopt;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_OPTIONS_H_
