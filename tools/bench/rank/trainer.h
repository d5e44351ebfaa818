// Tandem's side of the pipeline's and the hybrid's benchmark: replicas of a
// model cut into stages, a thread each, on the cores of one process or several.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_TRAINER_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_TRAINER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/comm/communicator.h"
#include "core/model/batch.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/prediction.h"
#include "parallel/strategy/hybrid.h"
#include "tools/bench/bench_case.h"
#include "tools/bench/pipeline_case.h"

namespace tandem {

// What measurements of one setting share.
struct PipelineInputs {
  BenchCase bench;
  NamedTensors state;
  std::vector<Batch> batches;  // a replica's part
};

// Of one rank.
struct PipelinePlace {
  std::vector<int> cores;         // a device for each, bound to it; -1: to none
  int pipe = 1;                   // ranks of a replica
  Communicator* world = nullptr;  // null: one rank
};

// Not thread-safe.
class PipelineTrainer {
 public:
  // `inputs` and the place's communicator must outlive it. Begins from their
  // state. Collective.
  static absl::StatusOr<std::unique_ptr<PipelineTrainer>> Create(
      const PipelineInputs& inputs, const PipelineSetting& setting,
      const PipelinePlace& place);

  // Forward, backward and optimizer, on the next batch. Collective.
  absl::StatusOr<Score> Step();

  const Cuts& cuts() const { return cuts_; }

 private:
  explicit PipelineTrainer(const PipelineInputs& inputs) : inputs_(inputs) {}

  const PipelineInputs& inputs_;
  Cuts cuts_;
  std::unique_ptr<Hybrid> strategy_;
  size_t next_ = 0;
};

// What the slowest device's optimizer takes when all work at the same time.
absl::StatusOr<double> OptimizerMs(const PipelineInputs& inputs,
                                   const PipelineSetting& setting,
                                   const Cuts& cuts,
                                   const std::vector<int>& cores);

// What each stage takes for one microbatch, in milliseconds: means over
// `count` batches, on the calling thread. Backward counts as the input's part
// where the schedule does not split it.
absl::StatusOr<std::vector<StageCost>> StageTimes(
    const PipelineInputs& inputs, const PipelineSetting& setting,
    const Cuts& cuts, int64_t count);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_TRAINER_H_
