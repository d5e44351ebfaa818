// For tests: the network and the batches of make_ddp_parity.py.

#ifndef TANDEM_TESTS_PARALLEL_DDP_PARITY_MLP_H_
#define TANDEM_TESTS_PARALLEL_DDP_PARITY_MLP_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <string>

namespace tandem {

constexpr int64_t kParityBatch = 4;  // samples of one rank, one microbatch
constexpr int64_t kParityInputs = 7;
constexpr int64_t kParityWidth = 9;
constexpr int64_t kParityClasses = 5;

// The branch is used where the caller says so, fc2 `times` times. Values are
// those of the formula, by parameter name and `suffix`. Lies on the calling
// rank's TestDevice(), as batches do.
struct ParityMlp : torch::nn::Module {
  explicit ParityMlp(const std::string& suffix = "");
  at::Tensor forward(at::Tensor x, bool use_branch = true, int times = 1);

  torch::nn::Linear fc1, fc2, branch, fc3;
};

// inputs [kParityBatch, kParityInputs], targets [kParityBatch].
struct ParityBatch {
  at::Tensor inputs;
  at::Tensor targets;
};
ParityBatch MakeParityBatch(int step, int rank, int microbatch);

// The mean cross entropy.
at::Tensor ParityLoss(const at::Tensor& outputs, const ParityBatch& batch);

// All parameters, or their gradients (NaN where there is none), one after the
// other, on the CPU.
at::Tensor FlattenParameters(const torch::nn::Module& module);
at::Tensor FlattenGradients(const torch::nn::Module& module);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_DDP_PARITY_MLP_H_
