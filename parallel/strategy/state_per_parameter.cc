#include "parallel/strategy/state_per_parameter.h"

#include "parallel/optim/optimizer_rule.h"
#include "parallel/sharding/optimizer_sharding.h"
#include "parallel/step/parts/step_parts.h"
#include "parallel/step/step_part_row.h"

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
  for (const StepPartRow* row : StepPartRows()) {
    if (row->further_state == nullptr) continue;
    kept.further += row->further_state(options, replicas);
  }
  return kept;
}

}  // namespace tandem
