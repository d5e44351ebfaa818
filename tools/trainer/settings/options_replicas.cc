// What goes with how many replicas a job has, and with parameter servers; and
// what does not.

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

// Whether one replica does something by it all the same.
bool ServesOne(const TrainOptions& options, const std::string& flag,
               const SettingValue& value) {
  if (flag == "gradient_accumulation_steps") return true;
  // Nothing is shared, as it was asked for.
  if (flag == "shard_optimizer") return ToText(value) == "off";
  // The outer optimizer follows one replica's own steps as well.
  const std::set<std::string> averages = {
      "average_parameters_every", "average_parameters_warmup_steps",
      "outer_learning_rate", "outer_momentum"};
  return HasOuterOptimizer(options.ddp) && averages.count(flag) > 0;
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
  for (const auto& [flag, value] :
       Differing(Describe(options.ddp), Describe(DdpSettings()))) {
    if (ServesOne(options, flag, value)) continue;
    return absl::StrCat("--", flag, "=", ToText(value));
  }
  return "";
}

constexpr char kParameterServer[] = "parameter_server";

absl::Status CheckWithout(const TrainOptions& options) {
  for (const auto& [flag, value] :
       Differing(Describe(options.ddp), Describe(DdpSettings()))) {
    if (flag != "servers" && flag != "max_staleness") continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", ToText(value),
        " is for parameter servers, but --strategy=", options.strategy,
        " was given: set --strategy=", kParameterServer, ", or leave it out"));
  }
  return absl::OkStatus();
}

// Servers average, and nobody else does.
absl::Status CheckReplicaSettings(const TrainOptions& options) {
  const std::set<std::string> fitting = {
      "servers", "max_staleness", "gradient_accumulation_steps", "ddp_logging"};
  for (const auto& [flag, value] :
       Differing(Describe(options.ddp), Describe(DdpSettings()))) {
    if (fitting.count(flag) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", ToText(value),
        " is about replicas that average among themselves, but with "
        "--strategy=",
        kParameterServer, " servers update parameters: leave one out"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReplicas(const TrainOptions& options, int64_t replicas) {
  if (!IsPipeline(options.pipeline, SurroundingsOf(options))) {
    return absl::OkStatus();
  }
  const bool is_hybrid = options.strategy == "hybrid" ||
                         options.pipeline.reproducible || replicas > 1;
  for (const auto& [flag, value] :
       Differing(Describe(options.ddp), Describe(DdpSettings()))) {
    const bool accumulates = flag == "gradient_accumulation_steps";
    if (is_hybrid && !accumulates) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", ToText(value),
        accumulates
            ? " is for replicas in one piece, but a pipeline accumulates over "
              "its microbatches: leave it out, and give a larger --batch_size "
              "with more --microbatches"
            : " is for replicas, but a pipeline is one replica and averages "
              "nothing: leave it out"));
  }
  return absl::OkStatus();
}

absl::Status CheckForOneReplica(const TrainOptions& options) {
  if (ServersOf(options) > 0) return absl::OkStatus();
  const std::string given = FirstForSeveral(options);
  if (given.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      given,
      " is about several replicas, but this job has one, which does nothing by "
      "it: leave it out, or start more ranks (--nproc_per_node)"));
}

int ServersOf(const TrainOptions& options) {
  if (options.strategy != kParameterServer) return 0;
  return static_cast<int>(options.ddp.servers);
}

absl::Status CheckParameterServer(const TrainOptions& options) {
  if (ServersOf(options) == 0) return CheckWithout(options);
  TANDEM_RETURN_IF_ERROR(CheckReplicaSettings(options));
  if (options.reduce_dtype != TrainOptions().reduce_dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--reduce_dtype=", options.reduce_dtype,
        " is of gradients between replicas, but with --strategy=",
        kParameterServer, " they go to servers, as they are: leave it out"));
  }
  if (options.pipeline.reproducible) {
    return absl::InvalidArgumentError(
        absl::StrCat("--reproducible needs one order for every sum, which "
                     "--strategy=",
                     kParameterServer, " does not keep: leave one out"));
  }
  if (!options.trace_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--trace_file=", options.trace_file,
                     " is of a step that all ranks are in together, which "
                     "--strategy=",
                     kParameterServer, " does not have: leave one out"));
  }
  const int64_t servers = options.ddp.servers;
  const int64_t staleness = options.ddp.max_staleness;
  if (options.clip_grad_norm > 0 && (servers > 1 || staleness != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--clip_grad_norm=", options.clip_grad_norm,
        " needs all gradients of a step in one place, which --servers=",
        servers, " with --max_staleness=", staleness,
        " has not: give --servers=1 and --max_staleness=0, or "
        "--clip_grad_value"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
