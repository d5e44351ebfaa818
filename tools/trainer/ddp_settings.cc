#include "tools/trainer/ddp_settings.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status_macros.h"
#include "tools/trainer/flag_checks.h"

namespace tandem {
namespace {

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
            {"none", "fp16", "bf16", "powersgd", "powersgd_fp16"}),
      Between("power_sgd_rank", settings.power_sgd_rank, 1, 1e6),
      AtLeast("power_sgd_start_step", settings.power_sgd_start_step, 0),
      AtLeast("average_parameters_every", settings.average_parameters_every, 0),
      AtLeast("average_parameters_warmup_steps",
              settings.average_parameters_warmup_steps, 0),
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
      {"average_parameters_every", text(settings.average_parameters_every)},
      {"average_parameters_warmup_steps",
       text(settings.average_parameters_warmup_steps)},
      {"ddp_logging", word(settings.ddp_logging)},
  };
}

}  // namespace tandem
