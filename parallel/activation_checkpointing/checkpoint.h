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
// 1604.06174.) docs/library.md tells more.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINT_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINT_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/activation_checkpointing/checkpoint_frame.h"
#include "parallel/activation_checkpointing/options.h"
#include "parallel/activation_checkpointing/recompute_context.h"
#include "parallel/activation_checkpointing/reentrant_checkpoint.h"

namespace tandem {

// The tensors within a function's arguments or results, whatever holds them
// (torch.utils._pytree for C++ types). Calls `visit` with each tensor, in a
// fixed order, undefined ones included.
// Looks into pairs, tuples, arrays, vectors, maps and optionals, of any depth;
// what else there is has none.
template <typename Visit>
struct TensorLeaves {
  const Visit& visit;

  void In(at::Tensor& tensor) const { visit(tensor); }
  template <typename T>
  void In(std::optional<T>& value) const {
    if (value.has_value()) In(*value);
  }
  template <typename T>
  void In(std::vector<T>& values) const {
    for (T& each : values) In(each);
  }
  void In(std::vector<bool>&) const {}
  template <typename T, size_t n>
  void In(std::array<T, n>& values) const {
    for (T& each : values) In(each);
  }
  template <typename Key, typename T, typename... Rest>
  void In(std::map<Key, T, Rest...>& values) const {
    for (auto& each : values) In(each.second);
  }
  template <typename A, typename B>
  void In(std::pair<A, B>& values) const {
    In(values.first);
    In(values.second);
  }
  template <typename... T>
  void In(std::tuple<T...>& values) const {
    std::apply([&](auto&... each) { (In(each), ...); }, values);
  }
  template <typename T>
  void In(T&) const {}
};

template <typename T, typename Visit>
void ForEachTensor(T& values, const Visit& visit) {
  TensorLeaves<Visit>{visit}.In(values);
}

// The defined tensors of a value, apart from it, and which they were.
struct TakenTensors {
  std::vector<at::Tensor> tensors;
  std::vector<bool> is_taken;  // by leaf
};

// Leaves undefined ones in their places.
template <typename T>
TakenTensors TakeTensors(T& values) {
  TakenTensors taken;
  ForEachTensor(values, [&](at::Tensor& tensor) {
    taken.is_taken.push_back(tensor.defined());
    if (tensor.defined()) taken.tensors.push_back(std::move(tensor));
  });
  return taken;
}

// Puts `tensors`, one for each that was taken, where they were.
template <typename T>
void PutTensors(const std::vector<bool>& is_taken,
                const std::vector<at::Tensor>& tensors, T& values) {
  size_t leaf = 0, next = 0;
  ForEachTensor(values, [&](at::Tensor& tensor) {
    if (is_taken[leaf++]) tensor = tensors[next++];
  });
}

// A torch::nn module, or a pointer to one.
template <typename F, typename = void>
struct IsModule : std::false_type {};
template <typename F>
struct IsModule<F, std::void_t<decltype(std::declval<F&>()->named_buffers())>>
    : std::true_type {};

// A module's forward(arguments...), or function(arguments...). (A Sequential as
// a function does not compile: its forward is a template.)
template <typename F, typename... Args>
decltype(auto) CallOrForward(F& function, Args&... arguments) {
  if constexpr (IsModule<F>::value) {
    return function->forward(arguments...);
  } else {
    return function(arguments...);
  }
}

// A function and its arguments, whose tensors come from elsewhere, so that it
// can be called again with others in their places (functools.partial over the
// leaves of torch.utils._pytree). Thread-safe where the function is: each call
// has arguments of its own.
template <typename F, typename... Args>
struct BoundFunction {
  using Arguments = std::tuple<Args...>;
  using Result = std::decay_t<decltype(CallOrForward(
      std::declval<F&>(), std::declval<Args&>()...))>;

  // `tensors`: one for each that was taken from the arguments.
  Result operator()(const std::vector<at::Tensor>& tensors) const {
    Arguments all = arguments;
    PutTensors(is_taken, tensors, all);
    return std::apply(
        [this](Args&... each) -> Result {
          return CallOrForward(*function, each...);
        },
        all);
  }

  std::shared_ptr<F> function;
  Arguments arguments;  // without their tensors
  std::vector<bool> is_taken;
};

namespace checkpoint_internal {

template <typename Run>
typename Run::Result RunReentrant(const CheckpointOptions& options,
                                  const Run& run,
                                  const std::vector<at::Tensor>& inputs) {
  using Result = typename Run::Result;
  // What the first pass gives beside tensors, and where these go.
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
