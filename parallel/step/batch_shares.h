// Shares of a global batch: which samples a step has, which of them are this
// replica's, and what each microbatch weighs.

#ifndef TANDEM_PARALLEL_STEP_BATCH_SHARES_H_
#define TANDEM_PARALLEL_STEP_BATCH_SHARES_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/loss/loss.h"
#include "core/model/batch.h"
#include "parallel/pipeline/executor.h"
#include "parallel/step/mesh_groups.h"
#include "parallel/step/mesh_strategy_options.h"

namespace tandem {

// Shares of one step after the other. Not thread-safe.
class BatchShares {
 public:
  // What it is given must outlive it, but for the loss.
  BatchShares(const MeshStrategyOptions& options, LossFunction loss,
              const MeshGroups& groups)
      : options_(options),
        loss_(std::move(loss)),
        groups_(groups),
        division_(options.uneven_division) {}

  // Begins a step, with a batch of so many samples here. Collective where
  // batches may be uneven. InvalidArgument where the replicas' sizes do not
  // make a step. `apart`: replicas train each on its own in this step, and send
  // each other nothing.
  absl::Status ExchangeSizes(int64_t size, bool apart = false);

  // The batch in microbatches of this step. InvalidArgument where their number
  // or sizes are not what schedule and options ask for.
  absl::StatusOr<std::vector<Batch>> Microbatches(const Batch& batch) const;

  // Where they stand in the global batch of step number `step`. Collective over
  // the last stage's replicas where the loss has a weight.
  absl::StatusOr<StepSamples> SamplesOfStep(
      const std::vector<Batch>& microbatches, int64_t step) const;

  // From the next step on.
  void set_division(UnevenDivision division) { division_ = division; }
  // See Strategy::SetMeanWeight.
  void set_mean_weight(
      std::function<absl::StatusOr<double>(double mine)> mean) {
    mean_weight_ = std::move(mean);
  }

  // How many of them a replica has in this step.
  int64_t MicrobatchesOf(int replica) const;
  // The greatest number that a replica has in this step.
  int64_t MostMicrobatches() const;
  // Whether another one has fewer.
  bool SomeHaveFewer() const;

 private:
  absl::StatusOr<std::vector<double>> LossParts(
      const std::vector<Batch>& microbatches) const;
  double SamplesDividedBy() const;
  int64_t MicrobatchesFor(int64_t samples) const;

  const MeshStrategyOptions& options_;
  const LossFunction loss_;
  const MeshGroups& groups_;
  UnevenDivision division_;
  std::function<absl::StatusOr<double>(double mine)> mean_weight_;  // or null
  bool apart_ = false;
  std::vector<int64_t> sizes_;  // of the step's batches, by replica
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_BATCH_SHARES_H_
