#include "tools/trainer/job/mesh_options.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "tools/trainer/settings/apply_ddp_settings.h"

namespace tandem {

MeshStrategyOptions ReplicaOptionsOf(const TrainOptions& options,
                                     const Schedule& schedule) {
  MeshStrategyOptions mesh;
  mesh.schedule = schedule;
  mesh.microbatch_size = options.pipeline.microbatch_size;
  // Replicas in one piece take the mean of their means.
  mesh.uneven_batches = !options.drop_last &&
                        IsPipeline(options.pipeline, SurroundingsOf(options));
  mesh.weight_gradient_batch =
      std::max(1, static_cast<int>(options.pipeline.weight_gradient_batch));
  mesh.reproducible = options.pipeline.reproducible;
  // The others do a step again that a death breaks off.
  mesh.updates_last = options.replace_replicas > 0;
  mesh.gradient_groups = static_cast<int>(options.pipeline.gradient_groups);
  mesh.seed = options.seed;
  mesh.pipeline.checkpointing = CheckpointingOf(options.pipeline);
  mesh.pipeline.selective = SelectiveOf(options);
  mesh.pipeline.defers_statistics = options.pipeline.deferred_batch_norm;
  mesh.pipeline.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1e3));
  mesh.pipeline.hang_timeout = mesh.pipeline.timeout;
  return mesh;
}

void AddReplicas(const TrainOptions& options, MeshStrategyOptions* mesh) {
  Apply(options.ddp, mesh);
  mesh->ddp.mixed_precision = PrecisionOf(options);
  mesh->compares_replicas = options.check_replicas_every > 0;
}

ActivationCheckpointing CheckpointingOf(const PipelineSettings& settings) {
  if (settings.checkpoint_activations == "always") {
    return ActivationCheckpointing::kAlways;
  }
  return settings.checkpoint_activations == "except_last"
             ? ActivationCheckpointing::kExceptLast
             : ActivationCheckpointing::kNever;
}

}  // namespace tandem
