// Optimizer of a job: what its settings say of it.

#ifndef TANDEM_TOOLS_TRAINER_JOB_OPTIMIZER_H_
#define TANDEM_TOOLS_TRAINER_JOB_OPTIMIZER_H_

#include "parallel/optim/optimizer_options.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// --optimizer and what belongs to it, but for the decay, from which some
// parameters may be exempt.
OptimizerOptions OptimizerOptionsOf(const TrainOptions& options,
                                    double weight_decay);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_OPTIMIZER_H_
