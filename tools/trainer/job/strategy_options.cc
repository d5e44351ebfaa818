#include "tools/trainer/job/strategy_options.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "parallel/ddp/options.h"
#include "parallel/sharding/optimizer_sharding.h"
#include "parallel/step/parts/step_parts.h"

namespace tandem {
namespace {

absl::StatusOr<CommunicationHook> MakeHook(const CommHook& hook) {
  if (hook.name == "none") return CommunicationHook();
  if (hook.name == "allreduce") return AllReduceHook();
  if (hook.name == "fp16") return Fp16CompressHook();
  if (hook.name == "bf16") return Bf16CompressHook();
  TANDEM_ASSIGN_OR_RETURN(const PowerSgd power_sgd,
                          PowerSgd::Create(hook.power_sgd));
  if (hook.name == "powersgd") return power_sgd.Hook();
  if (hook.name == "powersgd_bf16") {
    return Bf16CompressWrapper(power_sgd.Hook());
  }
  return Fp16CompressWrapper(power_sgd.Hook());
}

DistributedDataParallelOptions ReducingOptions(const DdpSettings& settings) {
  DistributedDataParallelOptions ddp;
  ddp.broadcast_buffers = settings.broadcast_buffers;
  ddp.init_sync = settings.init_sync;
  // One is of all buckets but the first, as in PyTorch.
  if (settings.bucket_cap_mb.size() == 1) {
    ddp.bucket_cap_mb = settings.bucket_cap_mb.front();
  } else {
    ddp.bucket_cap_mb_list = settings.bucket_cap_mb;
  }
  ddp.find_unused_parameters = settings.find_unused_parameters;
  ddp.static_graph = settings.static_graph;
  ddp.delay_all_reduce_named_params = settings.delay_all_reduce_named_params;
  ddp.param_to_hook_all_reduce = settings.param_to_hook_all_reduce;
  ddp.skip_all_reduce_unused_params = settings.skip_all_reduce_unused_params;
  ddp.parameters_to_ignore = settings.parameters_to_ignore;
  return ddp;
}

void Apply(const DdpSettings& settings, MeshStrategyOptions* options) {
  options->ddp = ReducingOptions(settings);
  if (settings.comm_hook != "none") {
    options->make_hook = [hook = RequestedHook(settings)] {
      return MakeHook(hook);
    };
  }
  options->sync_batch_norm = settings.sync_batch_norm;
  options->shard = ShardingNamed(settings.shard);
  options->data_shard = static_cast<int>(settings.data_shard);
  options->shard_min_num_params = settings.shard_min_num_params;
  options->reshard_after_forward = settings.reshard_after_forward;
  options->pipeline.max_unsharded_stages =
      static_cast<int>(settings.max_unsharded_stages);
  if (settings.uneven_inputs == "join") options->uneven_batches = true;
  if (settings.join_divide_by == "initial") {
    options->uneven_division = UnevenDivision::kInitialReplicas;
  }
  if (settings.join_divide_by == "present") {
    options->uneven_division = UnevenDivision::kPresentReplicas;
  }
  if (settings.average_parameters_every > 0) {
    options->averaging =
        ParameterAveragingOptions{settings.average_parameters_every,
                                  settings.average_parameters_warmup_steps};
    if (HasOuterOptimizer(settings)) {
      options->averaging->outer = OuterOptimizerOptions{
          settings.outer_learning_rate, settings.outer_momentum};
    }
  }
}

}  // namespace

MeshStrategyOptions ReplicaStrategyOptions(const TrainOptions& options,
                                           const Schedule& schedule) {
  MeshStrategyOptions mesh;
  mesh.schedule = schedule;
  mesh.microbatch_size = options.pipeline.microbatch_size;
  // Replicas in one piece take the mean of their means.
  mesh.uneven_batches =
      !options.drop_last &&
      IsPipeline(options.pipeline, MakePipelineContext(options));
  mesh.weight_gradient_batch =
      std::max(1, static_cast<int>(options.pipeline.weight_gradient_batch));
  mesh.reproducible = options.pipeline.reproducible;
  mesh.tensor = static_cast<int>(options.pipeline.tensor);
  mesh.sequence_parallel = options.pipeline.sequence_parallel;
  // The others do a step again that a death breaks off.
  mesh.updates_last = options.replace_replicas > 0;
  mesh.gradient_groups = static_cast<int>(options.pipeline.gradient_groups);
  mesh.seed = options.seed;
  mesh.ema_decay = options.ema_decay;
  mesh.pipeline.checkpointing = CheckpointingMode(options.pipeline);
  mesh.pipeline.selective = RequestedSelectiveCheckpointing(options);
  mesh.pipeline.defers_statistics = options.pipeline.deferred_batch_norm;
  mesh.pipeline.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1e3));
  mesh.pipeline.hang_timeout = mesh.pipeline.timeout;
  return mesh;
}

void AddReplicas(const TrainOptions& options, MeshStrategyOptions* mesh) {
  Apply(options.ddp, mesh);
  mesh->ddp.mixed_precision = RequestedPrecision(options);
  mesh->compares_replicas = options.check_replicas_every > 0;
}

StatePerParameter JobStatePerParameter(const TrainOptions& options,
                                       const Schedule& schedule,
                                       const UpdateOptions& optimizers,
                                       const std::vector<c10::Device>& devices,
                                       int replicas, bool share_memory) {
  MeshStrategyOptions mesh = ReplicaStrategyOptions(options, schedule);
  AddReplicas(options, &mesh);
  mesh.devices = devices;
  static_cast<UpdateOptions&>(mesh) = optimizers;
  StatePerParameter kept = KeptStatePerParameter(mesh, replicas, share_memory);
  const CommHook hook = RequestedHook(options.ddp);
  if (hook.is_power_sgd() && hook.power_sgd.use_error_feedback) ++kept.further;
  return kept;
}

ActivationCheckpointing CheckpointingMode(const PipelineSettings& settings) {
  if (settings.checkpoint_activations == "always") {
    return ActivationCheckpointing::kAlways;
  }
  return settings.checkpoint_activations == "except_last"
             ? ActivationCheckpointing::kExceptLast
             : ActivationCheckpointing::kNever;
}

}  // namespace tandem
