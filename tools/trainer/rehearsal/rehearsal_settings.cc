#include "tools/trainer/rehearsal/rehearsal_settings.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {
namespace {

// What needs values, time or a training to its end; in the order in which a
// rehearsal refuses it.
absl::Status CheckJob(const TrainOptions& options) {
  const TrainOptions usual;
  const DeviceSettings& devices = options.devices;
  const auto rule = [](bool is_broken, const std::string& why) -> SettingRule {
    return {is_broken, absl::StrCat("--fake_weights ", why)};
  };
  return CheckRules({
      rule(devices.device != "sim",
           absl::StrCat("is for simulated devices: set --device=sim, not ",
                        devices.device)),
      rule(devices.devices_per_rank > kMostRehearsedDevices,
           absl::StrCat("has ", kMostRehearsedDevices,
                        " devices at most, but --devices_per_rank=",
                        devices.devices_per_rank, " was given")),
      rule(options.backend == "sim_nccl",
           "has no streams, which --backend=sim_nccl needs"),
      rule(devices.sim_async, "computes nothing that --sim_async could queue"),
      rule(devices.share_devices,
           "gives each place a device: leave out --share_devices"),
      rule(options.dry_run,
           "rehearses a step, which --dry_run does not: give one"),
      rule(options.eval_only, "rehearses training: leave out --eval_only"),
      rule(!options.resume.empty(), "has no values: leave out --resume"),
      rule(!options.init_from.empty(), "has no values: leave out --init_from"),
      rule(options.check_finite, "has no values: leave out --check_finite"),
      rule(options.check_replicas_every > 0,
           "has no values: leave out --check_replicas_every"),
      rule(options.save_dir != usual.save_dir && !options.save_dir.empty(),
           "saves nothing: leave out --save_dir"),
      rule(options.save_every > 0, "saves nothing: leave out --save_every"),
      rule(options.save_every_epochs != usual.save_every_epochs,
           "saves nothing: leave out --save_every_epochs"),
      rule(!options.metrics_file.empty(),
           "has no metrics: leave out --metrics_file"),
      rule(!options.report.empty(), "has no metrics: leave out --report"),
      rule(!options.prometheus_file.empty(),
           "has no metrics: leave out --prometheus_file"),
      rule(!options.tensorboard_dir.empty(),
           "has no curves: leave out --tensorboard_dir"),
      rule(!options.trace_file.empty(),
           "has nothing to trace: leave out --trace_file"),
      rule(options.kernels == "measured",
           "cannot time kernels: leave out --kernels=measured"),
      rule(options.pipeline.balance == "profile",
           "cannot time layers: leave out --balance=profile"),
      rule(MeasuresMicrobatches(options.pipeline),
           "cannot time layers: leave out --microbatches=auto"),
      rule(options.strategy == "data_parallel",
           "knows replicas of other ranks alone: leave out "
           "--strategy=data_parallel"),
      rule(ParameterServerCount(options) > 0,
           "has no values that servers could hand on: leave out "
           "--strategy=parameter_server"),
      rule(options.replace_replicas > 0,
           "loses no rank: leave out --replace_replicas"),
  });
}

absl::Status CheckBandwidth(const std::string& flag, double given,
                            bool is_used) {
  return CheckRules({
      {!(given >= 0),
       absl::StrCat("--", flag, "=", given / 1e9, " must not be negative")},
      {!is_used && given != 0,
       absl::StrCat("--", flag, " is for --fake_weights, which was not given")},
  });
}

}  // namespace

absl::Status CheckRehearsal(const RehearsalSettings& settings,
                            const TrainOptions& options) {
  const bool rehearses = settings.fake_weights;
  TANDEM_RETURN_IF_ERROR(CheckBandwidth("sim_memory_bandwidth",
                                        settings.memory_bandwidth, rehearses));
  TANDEM_RETURN_IF_ERROR(
      CheckBandwidth("sim_link_bandwidth", settings.link_bandwidth, rehearses));
  TANDEM_RETURN_IF_ERROR(CheckBandwidth("sim_network_bandwidth",
                                        settings.network_bandwidth, rehearses));
  return rehearses ? CheckJob(options) : absl::OkStatus();
}

}  // namespace tandem
