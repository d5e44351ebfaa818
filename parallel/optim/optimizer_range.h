// What an optimizer is, and what it steps at once: for those who implement one.

#ifndef TANDEM_PARALLEL_OPTIM_OPTIMIZER_RANGE_H_
#define TANDEM_PARALLEL_OPTIM_OPTIMIZER_RANGE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

// PyTorch's name of the number of steps, where it is a state.
inline constexpr char kStepState[] = "step";

struct OptimizerTraits {
  std::string name;
  // One buffer each, as large as the parameters: {"exp_avg", "exp_avg_sq"}.
  std::vector<std::string> buffers;
  // Whether the number of steps is a state too ("step"), on which the update
  // depends; else only the first step may differ from later ones.
  bool counts_steps;
};

// Neighbours in one flat buffer: slices of it.
struct OptimizerRange {
  at::Tensor values;
  at::Tensor grads;
  std::vector<at::Tensor> state;      // as OptimizerTraits::buffers
  int64_t steps;                      // done before this one
  std::optional<at::Tensor> divisor;  // of grads, float32; null: none
  // Of a step that the device may leave out (Optimizer::StepUnless): whether it
  // does, and how many of `steps` it has left out; numbers of float32.
  std::optional<at::Tensor> found_inf = std::nullopt;
  std::optional<at::Tensor> skipped = std::nullopt;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_OPTIMIZER_RANGE_H_
