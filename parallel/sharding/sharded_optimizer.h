// Sharded optimizer for loops of one's own (ZeRO stage 1;
// torch.distributed.optim.ZeroRedundancyOptimizer).

#ifndef TANDEM_PARALLEL_SHARDING_SHARDED_OPTIMIZER_H_
#define TANDEM_PARALLEL_SHARDING_SHARDED_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/comm/communicator.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/optimizer.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {

// Replicas have the same gradients after backward (DistributedDataParallel);
// each steps its share of the parameters, for which alone it keeps state, and
// gets the others' values. The same bits as an optimizer on every rank.
//
//   auto optimizer = *ShardedOptimizer::Create({AdamWOptions()},
//                                              ddp->flat_buffers(), *world);
//   ... ddp->Backward(loss); optimizer.Step(1e-3);
//
// To be made before the second step: from then on buckets keep their order.
// Parameters that are each rank's own (parameters_to_ignore) are stepped there.
// Not thread-safe; all ranks call the same methods in the same order.
class ShardedOptimizer {
 public:
  // Takes one of `options` for each parameter group (MakeGroupedOptimizer).
  // `buffers`, the same on all ranks, and `group` must outlive the optimizer.
  static absl::StatusOr<ShardedOptimizer> Create(
      const std::vector<OptimizerOptions>& options,
      const FlatBufferList& buffers, Communicator& group);

  // Steps, and exchanges values. Collective; errors are Communicator's, and
  // FailedPrecondition for a parameter or gradient that was replaced.
  absl::Status Step(double learning_rate);

  // Optimizer's state: on the group's first rank all of it, to be saved;
  // elsewhere what is that rank's own. Collective.
  absl::StatusOr<NamedTensors> GatherState() const;
  // Given all of it, on each rank; whatever number of ranks has saved it.
  absl::Status LoadState(const StoredTensors& state) {
    return optimizer_->LoadState(state);
  }

 private:
  ShardedOptimizer(std::unique_ptr<Optimizer> optimizer, Communicator& group);

  std::unique_ptr<Optimizer> optimizer_;
  Communicator* group_;
  int64_t steps_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SHARDING_SHARDED_OPTIMIZER_H_
