// Options of a job's strategy: the optimizer, which parameters have no weight
// decay (--no_weight_decay_on), and MeshStrategy's, as the settings ask for
// them.

#ifndef TANDEM_TOOLS_TRAINER_JOB_STRATEGY_OPTIONS_H_
#define TANDEM_TOOLS_TRAINER_JOB_STRATEGY_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/row_parts.h"
#include "core/comm/communicator.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/optim/update_options.h"
#include "parallel/schedule/activation_checkpointing.h"
#include "parallel/schedule/schedule.h"
#include "parallel/step/mesh_strategy_options.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {

// --optimizer and what belongs to it, but for the decay, from which some
// parameters may be exempt.
OptimizerOptions RequestedOptimizer(const TrainOptions& options,
                                    double weight_decay);

// Parameters without decay are a group of their own, 1.
struct DecayGroups {
  OptimizerGroup group;  // null: one group
  std::vector<OptimizerOptions> further;
};

// A parameter that is rows of a weight (`parts`) goes by the weight's name, so
// that the same ones decay however the model is divided.
DecayGroups WeightDecayGroups(const TrainOptions& options,
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
    const TrainOptions& options, const std::vector<std::string>& parameters,
    const RowParts& parts);

// Options of a replica, whoever updates it: all but its cuts, its devices, and
// the update.
MeshStrategyOptions ReplicaStrategyOptions(const TrainOptions& options,
                                           const Schedule& schedule);

// Adds those of replicas that average their gradients, or their parameters.
void AddReplicas(const TrainOptions& options, MeshStrategyOptions* mesh);

// --checkpoint_activations.
ActivationCheckpointing CheckpointingMode(const PipelineSettings& settings);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_STRATEGY_OPTIONS_H_
