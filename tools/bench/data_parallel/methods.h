// Ways of training one network on the same batches: on one device, by
// DataParallel, by LibTorch's own data_parallel, by DistributedDataParallel.
//
// Networks that the comparison of data parallelism trains: modules that
// LibTorch can copy.

#ifndef TANDEM_TOOLS_BENCH_DATA_PARALLEL_METHODS_H_
#define TANDEM_TOOLS_BENCH_DATA_PARALLEL_METHODS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// A stack of layers under one name.
struct BenchNet : torch::nn::Cloneable<BenchNet> {
  explicit BenchNet(std::string kind);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  std::string kind;
  torch::nn::Sequential layers{nullptr};
};

struct BenchProblem {
  std::string name;
  std::string what;             // for a person
  std::vector<int64_t> sample;  // shape of one
  int64_t batch_size = 0;
  int64_t classes = 10;
};

// "wide": three linear layers of 1024, batch 256, many parameters for what is
// computed. "conv": four convolutions, batch 64, few.
std::vector<BenchProblem> BenchProblems();

// With values that depend on nothing but the kind.
std::shared_ptr<BenchNet> NewBenchNet(const std::string& kind);

struct BenchBatch {
  at::Tensor inputs, targets;
};
// On the CPU; a function of the step.
BenchBatch StepBatch(const BenchProblem& problem, int step);

// All begin with the same values and step with the same fused SGD.
class TrainingMethod {
 public:
  virtual ~TrainingMethod() = default;
  // One step; gives the loss.
  virtual absl::StatusOr<double> Step(const BenchBatch& batch) = 0;
};

struct NamedMethod {
  std::string name;
  std::unique_ptr<TrainingMethod> way;
};

// The first is that of one device. `devices` are those of the others, of which
// each has one thread for operators. LibTorch's Scatter and Gather are in its
// CUDA library alone: chunk and cat, which they come to, stand in for them
// beside its replicate and parallel_apply. The ranks of DDP are threads of this
// process, with a shared-memory backend.
absl::StatusOr<std::vector<NamedMethod>> MakeTrainingMethods(
    const BenchProblem& problem, const std::vector<c10::Device>& devices);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_DATA_PARALLEL_METHODS_H_
