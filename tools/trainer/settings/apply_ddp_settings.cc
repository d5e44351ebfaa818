#include "tools/trainer/settings/apply_ddp_settings.h"

#include <string>

#include "core/base/status_macros.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "parallel/ddp/options.h"

namespace tandem {
namespace {

absl::StatusOr<CommunicationHook> MakeHook(const DdpSettings& settings) {
  if (settings.comm_hook == "none") return CommunicationHook();
  if (settings.comm_hook == "allreduce") return AllReduceHook();
  if (settings.comm_hook == "fp16") return Fp16CompressHook();
  if (settings.comm_hook == "bf16") return Bf16CompressHook();
  PowerSgdOptions options;
  options.matrix_approximation_rank = settings.power_sgd_rank;
  options.start_power_sgd_iter = settings.power_sgd_start_step;
  options.min_compression_rate = settings.power_sgd_min_compression_rate;
  options.use_error_feedback = settings.power_sgd_use_error_feedback;
  options.warm_start = settings.power_sgd_warm_start;
  options.orthogonalization_epsilon =
      settings.power_sgd_orthogonalization_epsilon;
  options.random_seed = settings.power_sgd_random_seed;
  TANDEM_ASSIGN_OR_RETURN(const PowerSgd power_sgd, PowerSgd::Create(options));
  if (settings.comm_hook == "powersgd") return power_sgd.Hook();
  if (settings.comm_hook == "powersgd_bf16") {
    return Bf16CompressWrapper(power_sgd.Hook());
  }
  return Fp16CompressWrapper(power_sgd.Hook());
}

DistributedDataParallelOptions DdpOptionsOf(const DdpSettings& settings) {
  DistributedDataParallelOptions ddp;
  ddp.broadcast_buffers = settings.broadcast_buffers;
  ddp.init_sync = settings.init_sync;
  if (settings.bucket_cap_mb > 0) ddp.bucket_cap_mb = settings.bucket_cap_mb;
  ddp.bucket_cap_mb_list = settings.bucket_cap_mb_list;
  ddp.find_unused_parameters = settings.find_unused_parameters;
  ddp.gradient_as_bucket_view = settings.gradient_as_bucket_view;
  ddp.static_graph = settings.static_graph;
  ddp.delay_all_reduce_named_params = settings.delay_all_reduce_named_params;
  ddp.param_to_hook_all_reduce = settings.param_to_hook_all_reduce;
  ddp.skip_all_reduce_unused_params = settings.skip_all_reduce_unused_params;
  ddp.parameters_to_ignore = settings.parameters_to_ignore;
  return ddp;
}

OptimizerSharding ShardingOf(const DdpSettings& settings) {
  if (settings.shard_optimizer == "auto") return OptimizerSharding::kAuto;
  return settings.shard_optimizer == "on" ? OptimizerSharding::kOn
                                          : OptimizerSharding::kOff;
}

}  // namespace

void Apply(const DdpSettings& settings, MeshStrategyOptions* options) {
  options->ddp = DdpOptionsOf(settings);
  if (settings.comm_hook != "none") {
    options->make_hook = [settings] { return MakeHook(settings); };
  }
  options->sync_batch_norm = settings.sync_batch_norm;
  options->shard_optimizer = ShardingOf(settings);
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

}  // namespace tandem
