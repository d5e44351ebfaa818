// Optimizer groups of a job: which optimizer steps which parameters
// (--optimizer, --no_weight_decay_on), and that for a person.

#ifndef TANDEM_TOOLS_TRAINER_JOB_OPTIMIZER_GROUPS_H_
#define TANDEM_TOOLS_TRAINER_JOB_OPTIMIZER_GROUPS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/row_parts.h"
#include "core/comm/communicator.h"
#include "core/model/layer.h"
#include "parallel/optim/update_options.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

struct OptimizerGroups {
  // The optimizers, and the function that deals parameters out to them; all
  // else is as usual.
  UpdateOptions update;
  // "muon 16 of 52 parameters, adamw the rest", for a person; empty: one
  // optimizer has all of them.
  std::string description;
};

// What the settings ask for. With --optimizer=muon the matrices of hidden
// layers (core/model/hidden_matrices.h) are Muon's, and the rest is AdamW's. A
// parameter that is rows of a weight (`parts`) goes by the weight's name, so
// that the same ones decay however the model is divided. InvalidArgument where
// Muon has nothing to step; what making the layers, without values where that
// can be, gives.
absl::StatusOr<OptimizerGroups> MakeOptimizerGroups(const TrainOptions& options,
                                                    const LayerSpecs& layers,
                                                    const RowParts& parts);

// "25 of 51 parameters", for a person, each weight counted once, however many
// names or parts it has; empty: all decay alike. InvalidArgument where the
// pattern finds none on any rank. Collective.
absl::StatusOr<std::string> DescribeExempt(const TrainOptions& options,
                                           const Strategy& strategy,
                                           const RowParts& parts,
                                           Communicator& world);

// The same of all parameters of a model, before anyone has them.
absl::StatusOr<std::string> DescribeExempt(
    const TrainOptions& options, const OptimizerGroup& group,
    const std::vector<std::string>& parameters, const RowParts& parts);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_OPTIMIZER_GROUPS_H_
