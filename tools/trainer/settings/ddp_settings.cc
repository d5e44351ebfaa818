#include "tools/trainer/settings/ddp_settings.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// What averages parameters, or how, where it does not fit what else is given.
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

// The first option of PowerSGD that nobody would look at; empty: none.
std::string UselessOfPowerSgd(const DdpSettings& settings) {
  if (absl::StartsWith(settings.comm_hook, "powersgd")) return "";
  for (const auto& [flag, value] :
       Differing(Describe(settings), Describe(DdpSettings()))) {
    if (absl::StartsWith(flag, "power_sgd_")) return absl::StrCat("--", flag);
  }
  return "";
}

absl::Status CheckTogether(const DdpSettings& settings) {
  const std::string power_sgd = UselessOfPowerSgd(settings);
  TANDEM_RETURN_IF_ERROR(CheckRules({
      {!power_sgd.empty(),
       absl::StrCat(power_sgd,
                    " is PowerSGD's, but --comm_hook=", settings.comm_hook,
                    " was given: choose powersgd, powersgd_fp16 or "
                    "powersgd_bf16")},
      {!settings.gradient_as_bucket_view,
       "--gradient_as_bucket_view=false: gradients always are views of the "
       "buffers that are reduced"},
      {settings.bucket_cap_mb > 0 && !settings.bucket_cap_mb_list.empty(),
       absl::StrCat("--bucket_cap_mb=", settings.bucket_cap_mb,
                    " and --bucket_cap_mb_list both say how large buckets are: "
                    "give one")},
      {settings.delay_all_reduce_named_params.empty() !=
           settings.param_to_hook_all_reduce.empty(),
       "--delay_all_reduce_named_params and --param_to_hook_all_reduce need "
       "each other: give both or none"},
  }));
  return CheckAveraging(settings);
}

}  // namespace

bool HasOuterOptimizer(const DdpSettings& settings) {
  return settings.outer_learning_rate != 1 || settings.outer_momentum != 0;
}

absl::Status Validate(const DdpSettings& settings) {
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::range.Check(#name, settings.name));
#include "tools/trainer/settings/ddp_settings.def"
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
