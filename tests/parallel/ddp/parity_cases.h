// For tests: the jobs of make_ddp_parity.py under DistributedDataParallel.

#ifndef TANDEM_TESTS_PARALLEL_DDP_PARITY_CASES_H_
#define TANDEM_TESTS_PARALLEL_DDP_PARITY_CASES_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/make_optimizer.h"

namespace tandem {

// torch.optim's fused optimizers, called as Python calls them: SGD or AdamW
// with fused=True: one kernel call with a list of parameters, each a tensor of
// its own. tandem's optimizers call the same kernels once for many neighbours.
// The kernels take whole vectors, and what is left at the end of a tensor
// element by element, with other rounding (no fused multiply-add): so the two
// differ in the last numel % 16 elements of a parameter, and there alone
// (tests/parallel/ddp/parity_test.cc).
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

// The network and the batches of make_ddp_parity.py.
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

// Class Case of the script.
struct ParityCase {
  explicit ParityCase(std::string name);

  int MicrobatchesOf(int step) const;
  bool UsesBranch(int step, int rank) const;

  std::string name;
  DistributedDataParallelOptions options;
  OptimizerOptions optimizer;  // SGD with momentum
  double learning_rate = 0.1;
  // The optimizer as Python calls it, so that what differs is the data
  // parallelism alone; else tandem's.
  bool pythons_optimizer = true;
  int steps = 5;
  int microbatches = 1;
  bool one_microbatch_first = false;   // at the first step
  bool no_sync_around_forward = true;  // and backward; else backward alone
  double clip_norm = 0;
  double clip_value = 0;
  std::function<CommunicationHook()> hook;
  // What the hook makes of gradients before they are summed.
  at::ScalarType sent_as = at::kFloat;
  bool power_sgd = false;
  bool unused = false;
  int times = 1;
  std::vector<std::string> frozen;
};

// The script's AdamW.
OptimizerOptions ParityAdamW();

// Where the job ends, as the script writes it: all parameters one after the
// other, gradients NaN where there is none.
struct ParityResult {
  at::Tensor first_gradients;
  at::Tensor final;
};

// The ParityMlp's suffix on a rank: each begins elsewhere, DDP brings them
// together.
std::string ParitySuffix(int rank);

// This rank's part of a job. Collective.
absl::StatusOr<ParityResult> RunParityCase(const ParityCase& job,
                                           Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_DDP_PARITY_CASES_H_
