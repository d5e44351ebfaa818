// What goes with --strategy=parameter_server, and what does not.

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

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
