// Optimizer of a job: what its settings say of it, and which parameters have no
// weight decay (--no_weight_decay_on).

#ifndef TANDEM_TOOLS_TRAINER_JOB_OPTIMIZER_H_
#define TANDEM_TOOLS_TRAINER_JOB_OPTIMIZER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/row_parts.h"
#include "core/comm/communicator.h"
#include "parallel/optim/group_of_names.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// --optimizer and what belongs to it, but for the decay, from which some
// parameters may be exempt.
OptimizerOptions OptimizerOptionsOf(const TrainOptions& options,
                                    double weight_decay);

// Parameters without decay are a group of their own, 1.
struct DecayGroups {
  OptimizerGroup group;  // null: one group
  std::vector<OptimizerOptions> further;
};

// A parameter that is rows of a weight (`parts`) goes by the weight's name, so
// that the same ones decay however the model is divided.
DecayGroups DecayGroupsOf(const TrainOptions& options, const RowParts& parts);

// "25 of 51 parameters", for a person, each weight counted once, however many
// names or parts it has; empty: all decay alike. InvalidArgument where the
// pattern finds none on any rank. Collective.
absl::StatusOr<std::string> DescribeExempt(const TrainOptions& options,
                                           const Strategy& strategy,
                                           const RowParts& parts,
                                           Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_OPTIMIZER_H_
