#include "tools/trainer/settings/ddp_settings.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/flag_checks.h"

namespace tandem {
namespace {

// An option of PowerSGD that nobody would look at.
absl::Status CheckPowerSgd(const DdpSettings& settings) {
  if (absl::StartsWith(settings.comm_hook, "powersgd")) {
    return absl::OkStatus();
  }
  const DdpSettings usual;
  const std::pair<const char*, bool> given[] = {
      {"rank", settings.power_sgd_rank != usual.power_sgd_rank},
      {"start_step",
       settings.power_sgd_start_step != usual.power_sgd_start_step},
      {"min_compression_rate", settings.power_sgd_min_compression_rate !=
                                   usual.power_sgd_min_compression_rate},
      {"use_error_feedback", settings.power_sgd_use_error_feedback !=
                                 usual.power_sgd_use_error_feedback},
      {"warm_start",
       settings.power_sgd_warm_start != usual.power_sgd_warm_start},
      {"orthogonalization_epsilon",
       settings.power_sgd_orthogonalization_epsilon !=
           usual.power_sgd_orthogonalization_epsilon},
      {"random_seed",
       settings.power_sgd_random_seed != usual.power_sgd_random_seed},
  };
  for (const auto& [option, differs] : given) {
    if (!differs) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--power_sgd_", option,
        " is PowerSGD's, but --comm_hook=", settings.comm_hook,
        " was given: choose powersgd, powersgd_fp16 or powersgd_bf16"));
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const DdpSettings& settings) {
  if (!settings.gradient_as_bucket_view) {
    return absl::InvalidArgumentError(
        "--gradient_as_bucket_view=false: gradients always are views of the "
        "buffers that are reduced");
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
  if (settings.average_parameters_every == 0 &&
      settings.average_parameters_warmup_steps > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--average_parameters_warmup_steps=",
                     settings.average_parameters_warmup_steps,
                     " come before parameters are averaged, which is off: give "
                     "--average_parameters_every=STEPS as well"));
  }
  for (double cap : settings.bucket_cap_mb_list) {
    TANDEM_RETURN_IF_ERROR(Between("bucket_cap_mb_list", cap, 1e-6, 1e6));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const DdpSettings& settings) {
  return FirstError({
      Between("bucket_cap_mb", settings.bucket_cap_mb, 0, 1e6),
      Between("gradient_accumulation_steps",
              settings.gradient_accumulation_steps, 1, 1e9),
      OneOf("comm_hook", settings.comm_hook,
            {"none", "allreduce", "fp16", "bf16", "powersgd", "powersgd_fp16",
             "powersgd_bf16"}),
      Between("power_sgd_rank", settings.power_sgd_rank, 1, 1e6),
      AtLeast("power_sgd_start_step", settings.power_sgd_start_step, 0),
      Between("power_sgd_min_compression_rate",
              settings.power_sgd_min_compression_rate, 1e-6, 1e6),
      Between("power_sgd_orthogonalization_epsilon",
              settings.power_sgd_orthogonalization_epsilon, 0, 1e6),
      AtLeast("average_parameters_every", settings.average_parameters_every, 0),
      AtLeast("average_parameters_warmup_steps",
              settings.average_parameters_warmup_steps, 0),
      CheckPowerSgd(settings),
      CheckTogether(settings),
  });
}

std::vector<std::pair<std::string, std::string>> Describe(
    const DdpSettings& settings) {
  const auto text = [](const auto& value) { return absl::StrCat(value); };
  const auto word = [](bool on) { return std::string(on ? "true" : "false"); };
  const auto list = [](const auto& values) {
    return absl::StrJoin(values, ",");
  };
  return {
      {"broadcast_buffers", word(settings.broadcast_buffers)},
      {"init_sync", word(settings.init_sync)},
      {"bucket_cap_mb", text(settings.bucket_cap_mb)},
      {"bucket_cap_mb_list", list(settings.bucket_cap_mb_list)},
      {"find_unused_parameters", word(settings.find_unused_parameters)},
      {"gradient_as_bucket_view", word(settings.gradient_as_bucket_view)},
      {"static_graph", word(settings.static_graph)},
      {"delay_all_reduce_named_params",
       list(settings.delay_all_reduce_named_params)},
      {"param_to_hook_all_reduce", settings.param_to_hook_all_reduce},
      {"skip_all_reduce_unused_params",
       word(settings.skip_all_reduce_unused_params)},
      {"parameters_to_ignore", list(settings.parameters_to_ignore)},
      {"gradient_accumulation_steps",
       text(settings.gradient_accumulation_steps)},
      {"comm_hook", settings.comm_hook},
      {"power_sgd_rank", text(settings.power_sgd_rank)},
      {"power_sgd_start_step", text(settings.power_sgd_start_step)},
      {"power_sgd_min_compression_rate",
       text(settings.power_sgd_min_compression_rate)},
      {"power_sgd_use_error_feedback",
       word(settings.power_sgd_use_error_feedback)},
      {"power_sgd_warm_start", word(settings.power_sgd_warm_start)},
      {"power_sgd_orthogonalization_epsilon",
       text(settings.power_sgd_orthogonalization_epsilon)},
      {"power_sgd_random_seed", text(settings.power_sgd_random_seed)},
      {"average_parameters_every", text(settings.average_parameters_every)},
      {"average_parameters_warmup_steps",
       text(settings.average_parameters_warmup_steps)},
      {"ddp_logging", word(settings.ddp_logging)},
  };
}

}  // namespace tandem
