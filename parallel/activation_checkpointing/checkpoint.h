// Activation checkpointing, torch.utils.checkpoint for C++: a function's
// activations are not kept for backward but computed again there.
//
//   at::Tensor y = Checkpoint(block, x);  // block: a torch::nn module
//   auto [y, state] = Checkpoint(
//       [net](const at::Tensor& x, const State& state, bool causal) {
//         return net->forward(x, state, causal);
//       },
//       x, state, true);
//
// Costs the time of the function's forward once more; of what it keeps its
// inputs remain. (Chen et al., "Training Deep Nets with Sublinear Memory Cost",
// 1604.06174.) docs/activation_checkpointing.md tells more.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINT_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINT_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/activation_checkpointing/bound_function.h"
#include "parallel/activation_checkpointing/checkpoint_frame.h"
#include "parallel/activation_checkpointing/kept_buffers.h"
#include "parallel/activation_checkpointing/options.h"
#include "parallel/activation_checkpointing/reentrant_checkpoint.h"
#include "parallel/activation_checkpointing/tensor_leaves.h"

namespace tandem {
namespace checkpoint_internal {

template <typename Run>
typename Run::Result RunReentrant(const CheckpointOptions& options,
                                  const Run& run,
                                  const std::vector<at::Tensor>& inputs) {
  using Result = typename Run::Result;
  // Of the first pass: what is no tensor, and where tensors go.
  struct Rest {
    std::optional<Result> value;
    std::vector<bool> is_taken;
  };
  const auto rest = std::make_shared<Rest>();
  const auto outputs = ReentrantCheckpoint(
      options,
      [run, rest](const std::vector<at::Tensor>& again) {
        Result result = run(again);
        TakenTensors taken = TakeTensors(result);
        if (rest->value.has_value()) return taken.tensors;
        rest->value.emplace(std::move(result));
        rest->is_taken = std::move(taken.is_taken);
        return taken.tensors;
      },
      inputs);
  Result result = *rest->value;
  PutTensors(rest->is_taken, outputs, result);
  return result;
}

template <typename Run>
typename Run::Result RunWithFrame(const CheckpointOptions& options,
                                  const Run& run,
                                  const std::vector<at::Tensor>& inputs) {
  const auto frame = std::make_shared<CheckpointFrame>(
      options, [run](const std::vector<at::Tensor>& again) { run(again); },
      inputs);
  std::optional<typename Run::Result> result;
  {
    const CheckpointFrame::FirstPass first(frame.get());
    result.emplace(run(inputs));
  }
  frame->End(inputs);
  return *std::move(result);
}

}  // namespace checkpoint_internal

// function(arguments...), whose gradients are what they are without
// checkpointing: of tensors among the arguments, and of parameters that the
// function uses; by backward() or torch::autograd::grad, of one loss or of
// several, as often as the graph is kept for. Checkpoints nest.
//
// `function`: a callable, or a (shared pointer to a) torch::nn module, whose
// buffers (BatchNorm's running statistics) change once, in the first pass. It
// and the arguments are copied, and must be right until backward has ended:
// what a lambda captures by reference must live that long. Arguments, and what
// it gives, may be tensors, std::pair, tuple, array, vector, map and optional
// of these, to any depth, and anything else, which passes as it is.
//
// It must do the same when it runs again: it may depend on its arguments, on
// parameters, on the samples that are computed (core/random/sample_scope.h), on
// what it draws from LibTorch's default generators, and on autocast, which all
// are as in the first pass. Where it visibly does something else backward
// throws c10::Error, with options.name. Without gradients (torch::NoGradGuard)
// it is called as it is, and nothing else happens.
//
// Not thread-safe for one call; calls in different threads are independent.
template <typename F, typename... Args>
auto Checkpoint(const CheckpointOptions& options, F function,
                Args... arguments) {
  using Run = BoundFunction<F, Args...>;
  Run run = {std::make_shared<F>(std::move(function)),
             typename Run::Arguments(std::move(arguments)...),
             {}};
  TakenTensors taken = TakeTensors(run.arguments);
  run.is_taken = std::move(taken.is_taken);
  if (!at::GradMode::is_enabled()) return run(taken.tensors);
  CheckpointOptions all = options;
  if constexpr (IsModule<F>::value) {
    all.recompute_context =
        KeepingBuffers((*run.function)->buffers(), options.recompute_context);
  }
  return options.use_reentrant
             ? checkpoint_internal::RunReentrant(all, run, taken.tensors)
             : checkpoint_internal::RunWithFrame(all, run, taken.tensors);
}

template <typename F, typename... Args,
          typename = std::enable_if_t<!std::is_same_v<F, CheckpointOptions>>>
auto Checkpoint(F function, Args... arguments) {
  return Checkpoint(CheckpointOptions(), std::move(function),
                    std::move(arguments)...);
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINT_H_
