#include "tools/trainer/job/strategy_options.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <regex>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "parallel/ddp/options.h"

namespace tandem {
namespace {

// Adam and AdamW have the same options.
template <typename Options>
Options MakeAdamOptions(const TrainOptions& options, double weight_decay) {
  Options adam;
  adam.beta1 = options.adam_beta1;
  adam.beta2 = options.adam_beta2;
  adam.eps = options.adam_eps;
  adam.weight_decay = weight_decay;
  adam.amsgrad = options.amsgrad;
  return adam;
}

constexpr int64_t kExempt = 1;

std::string WholeName(const std::string& name, const RowParts& parts) {
  const auto part = FindPart(name, parts);
  return part.has_value() ? part->whole : name;
}

// Lines "GROUP NAME".
std::string Lines(const Strategy& strategy, const RowParts& parts) {
  std::string lines;
  for (const auto& [name, group] : strategy.OptimizerGroups()) {
    absl::StrAppend(&lines, group, " ", WholeName(name, parts), "\n");
  }
  return lines;
}

// Whether each weight is exempt, of all ranks.
std::map<std::string, bool> ExemptIn(const std::vector<std::string>& lines) {
  std::map<std::string, bool> exempt;
  for (const std::string& rank : lines) {
    for (const absl::string_view line :
         absl::StrSplit(rank, '\n', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> fields =
          absl::StrSplit(line, absl::MaxSplits(' ', 1));
      exempt[fields.second] |= fields.first == absl::StrCat(kExempt);
    }
  }
  return exempt;
}

absl::StatusOr<std::string> DescribeExempt(
    const TrainOptions& options, const std::map<std::string, bool>& exempt) {
  const auto count =
      std::count_if(exempt.begin(), exempt.end(),
                    [](const auto& each) { return each.second; });
  if (count > 0) {
    return absl::StrCat(count, " of ", exempt.size(), " parameters");
  }
  std::vector<std::string> names;
  for (const auto& each : exempt) names.push_back(each.first);
  return absl::InvalidArgumentError(
      absl::StrCat("--no_weight_decay_on=", options.no_weight_decay_on,
                   " matches no parameter of --model=", options.model,
                   ", which trains ", ShortList(names)));
}

}  // namespace

OptimizerOptions RequestedOptimizer(const TrainOptions& options,
                                    double weight_decay) {
  if (options.optimizer == "sgd") {
    SgdOptions sgd;
    sgd.momentum = options.momentum;
    sgd.nesterov = options.nesterov;
    sgd.weight_decay = weight_decay;
    return sgd;
  }
  if (options.optimizer == "adam") {
    return MakeAdamOptions<AdamOptions>(options, weight_decay);
  }
  return MakeAdamOptions<AdamWOptions>(options, weight_decay);
}

DecayGroups WeightDecayGroups(const TrainOptions& options,
                              const RowParts& parts) {
  if (options.no_weight_decay_on.empty()) return DecayGroups();
  const auto group = [pattern = std::regex(options.no_weight_decay_on),
                      parts](const std::string& name) -> int64_t {
    return std::regex_search(WholeName(name, parts), pattern) ? kExempt : 0;
  };
  return {group, {RequestedOptimizer(options, 0)}};
}

// No rank need have all parameters.
absl::StatusOr<std::string> DescribeExempt(const TrainOptions& options,
                                           const Strategy& strategy,
                                           const RowParts& parts,
                                           Communicator& world) {
  if (options.no_weight_decay_on.empty()) return std::string();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(Lines(strategy, parts), [] {
                            return "which parameters decay";
                          }));
  return DescribeExempt(options, ExemptIn(all));
}

absl::StatusOr<std::string> DescribeExempt(
    const TrainOptions& options, const std::vector<std::string>& parameters,
    const RowParts& parts) {
  if (options.no_weight_decay_on.empty()) return std::string();
  const OptimizerGroup group = WeightDecayGroups(options, parts).group;
  std::map<std::string, bool> exempt;
  for (const std::string& each : parameters) {
    exempt[WholeName(each, parts)] |= group(each) == kExempt;
  }
  return DescribeExempt(options, exempt);
}

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

OptimizerSharding Sharding(const DdpSettings& settings) {
  if (settings.shard_optimizer == "auto") return OptimizerSharding::kAuto;
  return settings.shard_optimizer == "on" ? OptimizerSharding::kOn
                                          : OptimizerSharding::kOff;
}

void Apply(const DdpSettings& settings, MeshStrategyOptions* options) {
  options->ddp = ReducingOptions(settings);
  if (settings.comm_hook != "none") {
    options->make_hook = [hook = RequestedHook(settings)] {
      return MakeHook(hook);
    };
  }
  options->sync_batch_norm = settings.sync_batch_norm;
  options->shard_optimizer = Sharding(settings);
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

ActivationCheckpointing CheckpointingMode(const PipelineSettings& settings) {
  if (settings.checkpoint_activations == "always") {
    return ActivationCheckpointing::kAlways;
  }
  return settings.checkpoint_activations == "except_last"
             ? ActivationCheckpointing::kExceptLast
             : ActivationCheckpointing::kNever;
}

}  // namespace tandem
