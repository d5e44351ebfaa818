// Bound function: a function and its arguments, whose tensors come from
// elsewhere, so that it can be called again with others in their places
// (functools.partial over the leaves of torch.utils._pytree).

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_BOUND_FUNCTION_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_BOUND_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/activation_checkpointing/tensor_leaves.h"

namespace tandem {

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

// Thread-safe where the function is: each call has arguments of its own.
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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_BOUND_FUNCTION_H_
