// Middle microbatches: those of a step that a stage does nothing special for.

#ifndef TANDEM_PARALLEL_PIPELINE_GRAPHS_MIDDLE_MICROBATCHES_H_
#define TANDEM_PARALLEL_PIPELINE_GRAPHS_MIDDLE_MICROBATCHES_H_

#include <set>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace tandem {

// Of a stage's microbatches from 0 to `microbatches`, given the actions of its
// device in order. Not among them: the one whose forward is the first, which
// writes copies of parameters (mixed precision); those that are the first to
// add gradients, which find none there; and the last one, during which replicas
// exchange theirs.
std::set<int> MiddleMicrobatches(const std::vector<Action>& actions, int stage,
                                 int microbatches);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_GRAPHS_MIDDLE_MICROBATCHES_H_
