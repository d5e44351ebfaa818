// Options of a job's strategy: MeshStrategy's, as the settings ask for them,
// but for the optimizers (optimizer_groups.h).

#ifndef TANDEM_TOOLS_TRAINER_JOB_STRATEGY_OPTIONS_H_
#define TANDEM_TOOLS_TRAINER_JOB_STRATEGY_OPTIONS_H_

#include "parallel/schedule/activation_checkpointing.h"
#include "parallel/schedule/schedule.h"
#include "parallel/step/mesh_strategy_options.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {

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
