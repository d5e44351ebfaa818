// Rules of who computes, how, and what replicas send each other: strategies,
// devices and backends, precisions, parameter servers, replacement.

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/agreement/agreement.h"
#include "core/base/status_macros.h"
#include "parallel/step/parts/step_parts.h"
#include "tools/trainer/settings/option_rules.h"

namespace tandem {
namespace {

SettingValues GivenOfDdp(const TrainOptions& options) {
  return Differing(Describe(options.ddp), Describe(DdpSettings()));
}

// Flags that do something in a job of one replica, too.
std::set<std::string> UsesOfOne(const TrainOptions& options) {
  std::set<std::string> uses = {"gradient_accumulation_steps"};
  // "off" is what one replica does anyway.
  if (options.ddp.shard == "off") uses.insert("shard");
  // The outer optimizer follows one replica's own steps as well.
  if (HasOuterOptimizer(options.ddp)) {
    uses.insert({"average_parameters_every", "average_parameters_warmup_steps",
                 "outer_learning_rate", "outer_momentum"});
  }
  return uses;
}

// The first flag that one replica alone has no use for; empty: none is given.
std::string FirstForSeveral(const TrainOptions& options) {
  if (options.check_replicas_every > 0) {
    return absl::StrCat("--check_replicas_every=",
                        options.check_replicas_every);
  }
  if (options.reduce_dtype != TrainOptions().reduce_dtype) {
    return absl::StrCat("--reduce_dtype=", options.reduce_dtype);
  }
  return FirstBut(GivenOfDdp(options), UsesOfOne(options));
}

// Checks the flags of parameter averaging against the others.
absl::Status CheckAveraging(const DdpSettings& settings) {
  const int64_t every = settings.average_parameters_every;
  const std::string gives_every =
      "give --average_parameters_every=STEPS as well";
  return CheckRules({
      {every > 0 && settings.comm_hook != "none",
       absl::StrCat("--comm_hook=", settings.comm_hook,
                    " averages gradients, --average_parameters_every=", every,
                    " parameters instead: give one")},
      {settings.join_divide_by != "samples" && settings.uneven_inputs != "join",
       absl::StrCat("--join_divide_by=", settings.join_divide_by,
                    " is about replicas that have no samples left: give "
                    "--uneven_inputs=join as well")},
      {every == 0 && settings.average_parameters_warmup_steps > 0,
       absl::StrCat("--average_parameters_warmup_steps=",
                    settings.average_parameters_warmup_steps,
                    " come before parameters are averaged, which is off: ",
                    gives_every)},
      {every == 0 && HasOuterOptimizer(settings),
       absl::StrCat(
           "--outer_learning_rate=", settings.outer_learning_rate,
           " and --outer_momentum=", settings.outer_momentum,
           " are about averaged parameters, which are off: ", gives_every)},
  });
}

}  // namespace

absl::Status CheckDdp(const DdpSettings& settings) {
  TANDEM_RETURN_IF_ERROR(ParseCommHook(settings.comm_hook).status());
  TANDEM_RETURN_IF_ERROR(CheckRules({
      {settings.delay_all_reduce_named_params.empty() !=
           settings.param_to_hook_all_reduce.empty(),
       "--delay_all_reduce_named_params and --param_to_hook_all_reduce need "
       "each other: give both or none"},
  }));
  const bool shards_gradients =
      settings.shard == "gradients" || settings.shard == "parameters";
  TANDEM_RETURN_IF_ERROR(CheckRules({
      {settings.data_shard != 0 && !shards_gradients &&
           settings.shard != "optimizer",
       absl::StrCat(
           "--data_shard=", settings.data_shard,
           " is about what replicas share, which --shard=", settings.shard,
           " does not say: give --shard=optimizer, gradients or "
           "parameters as well")},
      {settings.shard_min_num_params != DdpSettings().shard_min_num_params &&
           !shards_gradients,
       absl::StrCat("--shard_min_num_params=", settings.shard_min_num_params,
                    " is about layers that are gathered, which with --shard=",
                    settings.shard,
                    " they are not: give --shard=gradients or parameters as "
                    "well")},
      {!settings.reshard_after_forward && settings.shard != "parameters",
       absl::StrCat(
           "--reshard_after_forward=false keeps what --shard=parameters "
           "gathers, but --shard=",
           settings.shard, " gathers none: give --shard=parameters as well")},
      {settings.max_unsharded_stages != 0 && settings.reshard_after_forward,
       absl::StrCat("--max_unsharded_stages=", settings.max_unsharded_stages,
                    " is about stages that are gathered as a whole: give "
                    "--reshard_after_forward=false as well")},
  }));
  return CheckAveraging(settings);
}

absl::Status CheckReplicas(const TrainOptions& options, int64_t replicas) {
  const bool is_pipeline =
      IsPipeline(options.pipeline, MakePipelineContext(options));
  const bool is_hybrid = options.strategy == "hybrid" ||
                         options.pipeline.reproducible || replicas > 1;
  const SettingValues all = GivenOfDdp(options);
  const std::string given =
      is_hybrid ? FirstSetting(all, {"gradient_accumulation_steps"})
                : FirstBut(all, {});
  const bool accumulates =
      absl::StartsWith(given, "--gradient_accumulation_steps=");
  const bool is_broken = is_pipeline && !given.empty();
  return CheckRules({
      {is_broken && accumulates,
       absl::StrCat(
           given,
           " is for replicas without a pipeline, but a pipeline accumulates "
           "over its microbatches: leave it out, and give a larger "
           "--batch_size with more --microbatches")},
      {is_broken && !accumulates,
       absl::StrCat(given,
                    " is for replicas, but a pipeline is one replica and "
                    "averages nothing: leave it out")},
  });
}

absl::Status CheckForOneReplica(const TrainOptions& options) {
  const std::string given = FirstForSeveral(options);
  return CheckRules({
      {ParameterServerCount(options) == 0 && !given.empty(),
       absl::StrCat(given,
                    " is about several replicas, but this job has one, where "
                    "it has no effect: leave it out, or start more ranks "
                    "(--nproc_per_node)")},
  });
}

absl::Status CheckParameterServer(const TrainOptions& options) {
  const SettingValues given = GivenOfDdp(options);
  const bool has_servers = ParameterServerCount(options) > 0;
  const std::string of_servers =
      FirstSetting(given, {"servers", "max_staleness"});
  const std::string of_replicas =
      FirstBut(given, {"servers", "max_staleness",
                       "gradient_accumulation_steps", "ddp_logging"});
  const int64_t servers = options.ddp.servers;
  const int64_t staleness = options.ddp.max_staleness;
  return CheckRules({
      {!has_servers && !of_servers.empty(),
       absl::StrCat(of_servers, " is for parameter servers, but --strategy=",
                    options.strategy, " was given: set --strategy=",
                    kParameterServer, ", or leave it out")},
      // Servers average, and nobody else does.
      {has_servers && !of_replicas.empty(),
       absl::StrCat(of_replicas,
                    " is about replicas that average among themselves, but "
                    "with --strategy=",
                    kParameterServer,
                    " servers update parameters: leave one out")},
      {has_servers && options.reduce_dtype != TrainOptions().reduce_dtype,
       absl::StrCat("--reduce_dtype=", options.reduce_dtype,
                    " is of gradients between replicas, but with --strategy=",
                    kParameterServer,
                    " they go to servers, as they are: leave it out")},
      {has_servers && options.optimizer == "muon",
       absl::StrCat("--optimizer=muon steps whole matrices, but with "
                    "--strategy=",
                    kParameterServer,
                    " servers own slices that cut them: leave one out")},
      {has_servers && options.pipeline.reproducible,
       absl::StrCat("--reproducible needs one order for every sum, which "
                    "--strategy=",
                    kParameterServer, " does not keep: leave one out")},
      {has_servers && !options.trace_file.empty(),
       absl::StrCat("--trace_file=", options.trace_file,
                    " is of a step that all ranks are in together, which "
                    "--strategy=",
                    kParameterServer, " does not have: leave one out")},
      {has_servers && options.clip_grad_norm > 0 &&
           (servers > 1 || staleness != 0),
       absl::StrCat(
           "--clip_grad_norm=", options.clip_grad_norm,
           " needs all gradients of a step in one place, which "
           "--servers=",
           servers, " with --max_staleness=", staleness,
           " does not have: give --servers=1 and --max_staleness=0, or "
           "--clip_grad_value")},
  });
}

absl::Status CheckBackend(const TrainOptions& options) {
  const DeviceSettings& devices = options.devices;
  const std::string& device = devices.device;
  const std::string& backend = options.backend;
  const bool of_gpus = devices.cudnn_benchmark || devices.allow_tf32;
  const std::string numerics =
      devices.cudnn_benchmark ? "--cudnn_benchmark" : "--allow_tf32";
  return CheckRules({
      {of_gpus && device != "cuda",
       absl::StrCat(numerics, " is for GPUs: set --device=cuda, not ", device)},
      {of_gpus && options.pipeline.reproducible,
       absl::StrCat(
           numerics,
           devices.cudnn_benchmark
               ? " picks kernels by time, and another run may pick others"
               : " rounds as GPUs with TF32 do and others do not",
           ", which --reproducible cannot have: leave one out")},
      // A file of choices where nothing is chosen.
      {!options.kernel_cache.empty() && !MeasuresKernels(options),
       absl::StrCat(
           "--kernel_cache=", options.kernel_cache,
           " keeps kernels that are measured, but ",
           options.kernels == "fixed" ? "--kernels=fixed" : "--reproducible",
           " has a rule choose them: leave it out")},
      {backend == "sim_nccl" && device != "sim",
       absl::StrCat("--backend=sim_nccl rehearses NCCL on simulated devices: "
                    "set --device=sim, not ",
                    device)},
      {backend == "nccl" && device != "cuda",
       absl::StrCat("--backend=nccl is for GPUs: set --device=cuda, or "
                    "rehearse it with --device=sim --backend=sim_nccl; "
                    "--device is ",
                    device)},
      {devices.share_devices && (backend == "nccl" || backend == "sim_nccl"),
       absl::StrCat("--share_devices puts ranks on one device, which NCCL "
                    "refuses (one rank a GPU): --backend=",
                    backend, " needs a device for each; use --backend=shm")},
  });
}

absl::Status CheckPrecision(const TrainOptions& options) {
  const DdpSettings& ddp = options.ddp;
  const std::optional<GradScalerOptions> scaler = RequestedGradScaler(options);
  const absl::Status values =
      scaler ? CheckGradScalerOptions(*scaler) : absl::OkStatus();
  const std::string of_scale = FirstSetting(
      Differing(Describe(options), Describe(TrainOptions())),
      {"init_scale", "growth_factor", "backoff_factor", "growth_interval"});
  const std::string skipping =
      options.skip_nonfinite ? "--skip_nonfinite" : "--dtype=fp16";
  const CommHook hook = RequestedHook(ddp);
  const bool remembers =
      hook.is_power_sgd() &&
      (hook.power_sgd.use_error_feedback || hook.power_sgd.warm_start);
  return CheckRules({
      {options.reduce_dtype != "fp32" && ddp.comm_hook != "none",
       absl::StrCat("--reduce_dtype=", options.reduce_dtype,
                    " and --comm_hook=", ddp.comm_hook,
                    " both say how gradients travel: leave one of them out")},
      // Nobody asks for a scale that is not used.
      {(!scaler || scaler->constant) && !of_scale.empty(),
       absl::StrCat(of_scale,
                    " is about the scale of the loss, which fp16 alone needs, "
                    "but products are computed in ",
                    PrecisionName(RequestedPrecision(options).param_dtype),
                    ": give --dtype=fp16, or leave it out")},
      {!values.ok(), absl::StrCat("--", values.message())},
      // What cannot skip a step, or cannot forget it.
      {scaler && ParameterServerCount(options) > 0,
       absl::StrCat(skipping,
                    " skips a step on all ranks where one gradient overflows, "
                    "but with --strategy=parameter_server nobody sees all "
                    "gradients of a step: leave it out (--dtype=bf16 needs no "
                    "scale), or take another strategy")},
      {scaler && remembers,
       absl::StrCat("--comm_hook=", ddp.comm_hook,
                    " takes over from step to step what it could not send, in "
                    "which the overflows that ",
                    skipping,
                    " skips would stay for good: leave it out (--dtype=bf16 "
                    "needs no scale), take another hook, or ",
                    hook.name, ":error_feedback=false,warm_start=false")},
  });
}

absl::Status CheckParts(const TrainOptions& options) {
  const DdpSettings& ddp = options.ddp;
  const bool compares = options.check_replicas_every != 0;
  const std::string comparing =
      absl::StrCat("--check_replicas_every=", options.check_replicas_every,
                   " compares replicas, ");
  const int64_t every = ddp.average_parameters_every;
  TANDEM_RETURN_IF_ERROR(CheckRules({
      {compares && ParameterServerCount(options) > 0,
       absl::StrCat(comparing, "but workers of --strategy=", options.strategy,
                    " have parameters of different ages: leave one out")},
      {compares && every != 0,
       absl::StrCat(comparing, "which --average_parameters_every=", every,
                    every == 1 ? " makes alike in each step, corrupted or not"
                               : " has train apart for a while",
                    ": leave one out")},
  }));
  const SettingValues given =
      Differing(Describe(options), Describe(TrainOptions()));
  NamedValues flags;
  for (const auto& [name, value] : given) flags[name] = ToText(value);
  TANDEM_RETURN_IF_ERROR(CheckStepFlags(flags));
  const bool reproducible = options.pipeline.reproducible;
  return CheckRules({
      // What lets the machine, or the layout, be seen in the result.
      {reproducible && options.kernels == "measured",
       "--kernels=measured lets another machine have other bits, which "
       "--reproducible cannot have: leave one out"},
      {reproducible && !ddp.parameters_to_ignore.empty(),
       absl::StrCat(FirstSetting(given, {"parameters_to_ignore"}),
                    " lets sums depend on the layout, which --reproducible "
                    "cannot have: leave one out")},
      {ddp.uneven_inputs == "join" && options.drop_last,
       "--uneven_inputs=join trains on every sample, but those at an epoch's "
       "end are left out: give --nodrop_last as well"},
      {ddp.sync_batch_norm && options.strategy == "data_parallel",
       "--sync_batch_norm is of ranks, and does not reach the replicas that "
       "--strategy=data_parallel has on each: use --strategy=ddp with a rank a "
       "device"},
  });
}

absl::Status CheckReplacedReplicas(const TrainOptions& options) {
  const bool replaces = options.replace_replicas != 0;
  const PipelineSettings& pipeline = options.pipeline;
  const DdpSettings& ddp = options.ddp;
  const auto rule = [&](bool is_broken, const std::string& why,
                        const std::string& given) -> SettingRule {
    return {replaces && is_broken,
            absl::StrCat("--replace_replicas=", options.replace_replicas, " ",
                         why, ", but ", given, " was given: leave one out")};
  };
  return CheckRules({
      rule(options.strategy != "ddp" && options.strategy != "hybrid" &&
               options.strategy != "auto",
           "is for several replicas (--strategy=ddp or hybrid)",
           absl::StrCat("--strategy=", options.strategy)),
      rule(pipeline.pipe > 1 && pipeline.balance == "profile",
           "has replicas come back that are cut as they were, not by times "
           "that are measured anew",
           "--balance=profile"),
      rule(options.devices.device == "cuda",
           "makes groups anew, which it does for --device=cpu and sim",
           "--device=cuda"),
      rule(options.backend != "shm" && options.backend != "gloo",
           "makes groups anew, which it does for --backend=shm and gloo",
           absl::StrCat("--backend=", options.backend)),
      rule(!ddp.parameters_to_ignore.empty(),
           "takes a lost rank's state from a neighbour, who has others of "
           "these",
           absl::StrCat("--parameters_to_ignore=",
                        absl::StrJoin(ddp.parameters_to_ignore, ","))),
      rule(ddp.uneven_inputs == "join",
           "deals the samples that are left anew, as many to each",
           "--uneven_inputs=join"),
      rule(options.eval_only, "is for training", "--eval_only"),
  });
}

}  // namespace tandem
