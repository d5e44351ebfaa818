// Replicas of a model that is made already: the data-parallel corner of the
// mesh.

#ifndef TANDEM_PARALLEL_STRATEGY_REPLICATED_H_
#define TANDEM_PARALLEL_STRATEGY_REPLICATED_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/loss/loss.h"
#include "core/model/layer.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/options.h"
#include "parallel/optim/update_options.h"
#include "parallel/strategy/strategy.h"

namespace tandem {

// Options of a strategy of replicas; MeshStrategyOptions has what is not here.
struct ReplicatedOptions : UpdateOptions {
  DistributedDataParallelOptions ddp;
  CommunicationHook hook;  // replaces the all-reduce; null: does not
  // Each batch is cut into as many equal parts, whose gradients add up; only
  // the last one's backward averages over ranks.
  int64_t accumulation_steps = 1;
  std::optional<ParameterAveragingOptions> averaging;
  c10::Device device = c10::kCPU;  // where layers and batches are brought
  // Seed of the random numbers that layers draw for samples (SampleScope).
  uint64_t seed = 0;
};

// A strategy (MeshStrategy, of one stage) that trains `layers`, whole, on every
// rank of `data`: DistributedDataParallel over ranks, "single" on one. Layers
// are moved to the device and shared with the strategy. A parameter that no
// rank used (options.ddp must allow it, except with one rank) is left alone.
// `data` must outlive it. Collective. Errors are MeshStrategy's.
absl::StatusOr<std::unique_ptr<Strategy>> MakeReplicated(
    const LayerList& layers, const LossFunction& loss,
    const ReplicatedOptions& options, Communicator& data);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_REPLICATED_H_
