// Tandem's side of the pipeline's benchmark: a model cut into stages on the
// cores of this process, a thread each.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_TRAINER_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_TRAINER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/batch.h"
#include "core/named_tensors.h"
#include "parallel/cut.h"
#include "parallel/hybrid.h"
#include "parallel/schedule_prediction.h"
#include "tools/bench/bench_case.h"
#include "tools/bench/pipeline_case.h"

namespace tandem {

// What measurements of one setting share.
struct PipelineInputs {
  BenchCase bench;
  NamedTensors state;
  std::vector<Batch> batches;
};

// Not thread-safe.
class PipelineTrainer {
 public:
  // `inputs` must outlive it. Begins from their state, with a device for each
  // of `cores`, to which its threads are bound (-1: to none).
  static absl::StatusOr<std::unique_ptr<PipelineTrainer>> Create(
      const PipelineInputs& inputs, const PipelineSetting& setting,
      const std::vector<int>& cores);

  // Forward, backward and optimizer, on the next batch.
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
