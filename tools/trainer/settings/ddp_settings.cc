#include "tools/trainer/settings/ddp_settings.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// An option of PowerSGD that nobody would look at.
absl::Status CheckPowerSgd(const DdpSettings& settings) {
  if (absl::StartsWith(settings.comm_hook, "powersgd")) {
    return absl::OkStatus();
  }
  for (const auto& [flag, value] :
       Differing(Describe(settings), Describe(DdpSettings()))) {
    if (!absl::StartsWith(flag, "power_sgd_")) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, " is PowerSGD's, but --comm_hook=", settings.comm_hook,
        " was given: choose powersgd, powersgd_fp16 or powersgd_bf16"));
  }
  return absl::OkStatus();
}

// What moves parameters after the first step, or has replicas train apart.
absl::Status CheckSharding(const DdpSettings& settings) {
  if (settings.shard_optimizer != "on") return absl::OkStatus();
  const char* culprit = nullptr;
  if (settings.average_parameters_every > 0) {
    culprit = "average_parameters_every";
  }
  if (settings.static_graph) culprit = "static_graph";
  if (settings.skip_all_reduce_unused_params) {
    culprit = "skip_all_reduce_unused_params";
  }
  if (culprit == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--shard_optimizer=on needs parameters that stay in their places and "
      "are updated together, which --",
      culprit, " does not give: leave one of them out"));
}

absl::Status CheckTogether(const DdpSettings& settings) {
  TANDEM_RETURN_IF_ERROR(CheckSharding(settings));
  if (!settings.gradient_as_bucket_view) {
    return absl::InvalidArgumentError(
        "--gradient_as_bucket_view=false: gradients always are views of the "
        "buffers that are reduced");
  }
  if (settings.bucket_cap_mb > 0 && !settings.bucket_cap_mb_list.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--bucket_cap_mb=", settings.bucket_cap_mb,
        " and --bucket_cap_mb_list both say how large buckets are: give one"));
  }
  if (settings.delay_all_reduce_named_params.empty() !=
      settings.param_to_hook_all_reduce.empty()) {
    return absl::InvalidArgumentError(
        "--delay_all_reduce_named_params and --param_to_hook_all_reduce need "
        "each other: give both or none");
  }
  if (settings.average_parameters_every > 0 && settings.comm_hook != "none") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--comm_hook=", settings.comm_hook,
        " averages gradients, --average_parameters_every=",
        settings.average_parameters_every, " parameters instead: give one"));
  }
  if (settings.average_parameters_every > 0 && settings.sync_batch_norm) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--sync_batch_norm has replicas normalise together, "
        "--average_parameters_every=",
        settings.average_parameters_every, " train apart: give one"));
  }
  if (settings.join_divide_by != "samples" &&
      settings.uneven_inputs != "join") {
    return absl::InvalidArgumentError(
        absl::StrCat("--join_divide_by=", settings.join_divide_by,
                     " is about replicas that have no samples left: give "
                     "--uneven_inputs=join as well"));
  }
  if (settings.average_parameters_every == 0 &&
      settings.average_parameters_warmup_steps > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--average_parameters_warmup_steps=",
                     settings.average_parameters_warmup_steps,
                     " come before parameters are averaged, which is off: give "
                     "--average_parameters_every=STEPS as well"));
  }
  if (settings.average_parameters_every == 0 && HasOuterOptimizer(settings)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--outer_learning_rate=", settings.outer_learning_rate,
                     " and --outer_momentum=", settings.outer_momentum,
                     " are about averaged parameters, which are off: give "
                     "--average_parameters_every=STEPS as well"));
  }
  return absl::OkStatus();
}

}  // namespace

bool HasOuterOptimizer(const DdpSettings& settings) {
  return settings.outer_learning_rate != 1 || settings.outer_momentum != 0;
}

absl::Status Validate(const DdpSettings& settings) {
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::range.Check(#name, settings.name));
#include "tools/trainer/settings/ddp_settings.def"
  TANDEM_RETURN_IF_ERROR(CheckPowerSgd(settings));
  return CheckTogether(settings);
}

SettingValues Describe(const DdpSettings& settings) {
  return {
#define SETTING(kind, name, value, range, help) \
  {#name, setting::kind::ValueOf(settings.name)},
#include "tools/trainer/settings/ddp_settings.def"
  };
}

}  // namespace tandem
