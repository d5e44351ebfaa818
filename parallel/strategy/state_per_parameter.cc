#include "parallel/strategy/state_per_parameter.h"

#include "parallel/optim/optimizer_rule.h"
#include "parallel/reproducible/ordered_gradients.h"
#include "parallel/schedule/schedule.h"
#include "parallel/sharding/optimizer_sharding.h"
#include "parallel/step/parts/step_parts.h"

namespace tandem {
namespace {

bool SharesOptimizer(const MeshStrategyOptions& options, bool share_memory) {
  if (options.shard_optimizer != OptimizerSharding::kAuto) {
    return options.shard_optimizer == OptimizerSharding::kOn;
  }
  return share_memory &&
         StateNumbers(options.optimizer) >= kLeastStateNumbers &&
         ExcludesSharding(options).empty();
}

}  // namespace

StatePerParameter StatePerParameterOf(const MeshStrategyOptions& options,
                                      int replicas, bool share_memory) {
  StatePerParameter kept;
  kept.optimizer_states = StateNumbers(options.optimizer);
  if (SharesOptimizer(options, share_memory)) kept.optimizer_shares = replicas;
  // What is the replica's own, while it shows the mean
  // (parallel/step/parts/averaging_part.cc).
  if (options.averaging && options.devices.front().is_cpu()) ++kept.further;
  if (options.averaging && options.averaging->outer) {
    kept.further += options.averaging->outer->momentum == 0 ? 1 : 2;
  }
  if (options.reproducible) {
    GradientOrder order;
    order.microbatches = options.schedule.microbatches;
    order.groups = options.gradient_groups > 0 ? options.gradient_groups
                                               : order.microbatches * replicas;
    order.splits = SplitsBackward(options.schedule);
    kept.further += OrderedGradients::FurtherBuffers(order, replicas);
  }
  return kept;
}

}  // namespace tandem
