// For tests: torch.optim's fused optimizers, called as Python calls them.

#ifndef TANDEM_TESTS_PARALLEL_DDP_PYTHON_OPTIMIZER_H_
#define TANDEM_TESTS_PARALLEL_DDP_PYTHON_OPTIMIZER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "parallel/optim/make_optimizer.h"

namespace tandem {

// SGD or AdamW with fused=True: one kernel call with a list of parameters, each
// a tensor of its own. tandem's optimizers call the same kernels once for many
// neighbours. The kernels take whole vectors, and what is left at the end of a
// tensor element by element, with other rounding (no fused multiply-add): so
// the two differ in the last numel % 16 elements of a parameter, and there
// alone (tests/parallel/ddp/parity_test.cc).
class PythonOptimizer {
 public:
  // SgdOptions with momentum, or AdamWOptions.
  PythonOptimizer(const OptimizerOptions& options,
                  std::vector<at::Tensor> parameters);

  // Leaves parameters without a gradient alone.
  void Step(double learning_rate);

 private:
  struct Lists {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> first;   // momentum_buffer, exp_avg
    std::vector<at::Tensor> second;  // exp_avg_sq
    std::vector<at::Tensor> steps;
  };
  Lists WithGradients() const;

  OptimizerOptions options_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> first_;
  std::vector<at::Tensor> second_;
  std::vector<at::Tensor> steps_;
  bool stepped_ = false;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_DDP_PYTHON_OPTIMIZER_H_
