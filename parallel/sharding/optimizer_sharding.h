// Optimizer sharding: whether replicas share the optimizer's work and state
// (ZeRO stage 1).

#ifndef TANDEM_PARALLEL_SHARDING_OPTIMIZER_SHARDING_H_
#define TANDEM_PARALLEL_SHARDING_OPTIMIZER_SHARDING_H_

#include <cstdint>
#include <string>

#include "parallel/optim/optimizer_options.h"

namespace tandem {

class Communicator;

// "off", "auto" or "on".
const char* Word(OptimizerSharding sharding);

// Whether one stage's replicas share.
struct ShardingChoice {
  bool shards = false;
  std::string reason;  // for a person: why, or why not
};

// From so many parameters on, with so many numbers of state for each, a step
// becomes faster: below, telling the others takes as long as updating all, or
// longer, depending on the processor (docs/sharded_optimizer.md).
inline constexpr int64_t kLeastShardedParameters = 1000000;
inline constexpr int kLeastStateNumbers = 2;

// What an optimizer has to do for a stage.
struct OptimizerWork {
  int64_t parameters = 0;
  int state_numbers = 0;  // of each parameter (StateNumbers)
};

// For the replicas of a stage; null: it has one. kAuto: where there is as much
// to do as that, and replicas share memory. `excluded_by`: what in the job
// cannot do with it, or empty; not with kOn. The same on all replicas.
ShardingChoice ChooseSharding(OptimizerSharding asked,
                              const OptimizerWork& work,
                              const Communicator* replicas,
                              const std::string& excluded_by);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SHARDING_OPTIMIZER_SHARDING_H_
