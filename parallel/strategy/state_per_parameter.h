// Kept state: what a job with a MeshStrategy's options holds for each
// parameter, before there is a strategy.

#ifndef TANDEM_PARALLEL_STRATEGY_STATE_PER_PARAMETER_H_
#define TANDEM_PARALLEL_STRATEGY_STATE_PER_PARAMETER_H_

#include "core/memory/state_bytes.h"
#include "parallel/step/mesh_strategy_options.h"

namespace tandem {

// On each device of one of so many replicas. `share_memory`: all of them do, so
// that OptimizerSharding::kAuto shares what large stages have; small ones,
// which it leaves alone, hold little. Of what a communication hook keeps
// nothing is known here.
StatePerParameter StatePerParameterOf(const MeshStrategyOptions& options,
                                      int replicas, bool share_memory);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STATE_PER_PARAMETER_H_
