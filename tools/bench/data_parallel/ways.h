// Ways of training one network on the same batches: on one device, by
// DataParallel, by LibTorch's own data_parallel, by DistributedDataParallel.

#ifndef TANDEM_TOOLS_BENCH_DATA_PARALLEL_WAYS_H_
#define TANDEM_TOOLS_BENCH_DATA_PARALLEL_WAYS_H_

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/data_parallel/nets.h"

namespace tandem {

// All begin with the same values and step with the same fused SGD.
class TrainingWay {
 public:
  virtual ~TrainingWay() = default;
  // One step; gives the loss.
  virtual absl::StatusOr<double> Step(const BenchBatch& batch) = 0;
};

struct NamedWay {
  std::string name;
  std::unique_ptr<TrainingWay> way;
};

// The first is that of one device. `devices` are those of the others, of which
// each has one thread for operators. LibTorch's Scatter and Gather are in its
// CUDA library alone: chunk and cat, which they come to, stand in for them
// beside its replicate and parallel_apply. The ranks of DDP are threads of this
// process, with a shared-memory backend.
absl::StatusOr<std::vector<NamedWay>> MakeTrainingWays(
    const BenchProblem& problem, const std::vector<c10::Device>& devices);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_DATA_PARALLEL_WAYS_H_
