// Options of a job's strategy: MeshStrategy's, as the settings ask for them,
// but for the optimizers (optimizer_groups.h).

#ifndef TANDEM_TOOLS_TRAINER_JOB_STRATEGY_OPTIONS_H_
#define TANDEM_TOOLS_TRAINER_JOB_STRATEGY_OPTIONS_H_

#include <c10/core/Device.h>

#include <vector>

#include "core/memory/state_bytes.h"
#include "parallel/optim/update_options.h"
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

// What the ranks that update a parameter keep for it, where `replicas` of a
// model with these optimizers have such a schedule on such devices.
// `share_memory`: see KeptStatePerParameter.
StatePerParameter JobStatePerParameter(const TrainOptions& options,
                                       const Schedule& schedule,
                                       const UpdateOptions& optimizers,
                                       const std::vector<c10::Device>& devices,
                                       int replicas, bool share_memory);

// --checkpoint_activations.
ActivationCheckpointing CheckpointingMode(const PipelineSettings& settings);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_STRATEGY_OPTIONS_H_
