#include "tools/trainer/rehearsal/rehearsal_settings.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

absl::Status Refuse(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--fake_weights ", why));
}

absl::Status CheckDevices(const DeviceSettings& devices) {
  if (devices.device != "sim") {
    return Refuse(absl::StrCat(
        "is for simulated devices: set --device=sim, not ", devices.device));
  }
  if (devices.devices_per_rank <= kMostRehearsedDevices) {
    return absl::OkStatus();
  }
  return Refuse(absl::StrCat("has ", kMostRehearsedDevices,
                             " devices at most, but --devices_per_rank=",
                             devices.devices_per_rank, " was given"));
}

struct Misfit {
  bool given;
  const char* why;
};

// What needs values, time or a training to its end.
std::vector<Misfit> MisfitsOf(const TrainOptions& options) {
  const std::string usual_save_dir = TrainOptions().save_dir;
  return {
      {options.backend == "sim_nccl",
       "has no streams, which --backend=sim_nccl needs"},
      {options.devices.sim_async,
       "computes nothing that --sim_async could queue"},
      {options.devices.share_devices,
       "gives each place a device: leave out --share_devices"},
      {options.eval_only, "rehearses training: leave out --eval_only"},
      {!options.resume.empty(), "has no values: leave out --resume"},
      {!options.init_from.empty(), "has no values: leave out --init_from"},
      {options.check_finite, "has no values: leave out --check_finite"},
      {options.check_replicas_every > 0,
       "has no values: leave out --check_replicas_every"},
      {options.save_dir != usual_save_dir && !options.save_dir.empty(),
       "saves nothing: leave out --save_dir"},
      {options.save_every > 0, "saves nothing: leave out --save_every"},
      {options.save_every_epochs != TrainOptions().save_every_epochs,
       "saves nothing: leave out --save_every_epochs"},
      {!options.metrics_file.empty(),
       "has no metrics: leave out --metrics_file"},
      {!options.trace_file.empty(),
       "has nothing to trace: leave out --trace_file"},
      {options.kernels == "measured",
       "cannot time kernels: leave out --kernels=measured"},
      {options.pipeline.balance == "profile",
       "cannot time layers: leave out --balance=profile"},
      {options.strategy == "data_parallel",
       "knows replicas of other ranks alone: leave out "
       "--strategy=data_parallel"},
      {ServersOf(options) > 0,
       "has no values that servers could hand on: leave out "
       "--strategy=parameter_server"},
      {options.replace_replicas > 0,
       "loses no rank: leave out --replace_replicas"},
  };
}

struct Bandwidth {
  const char* flag;
  double given;
};

absl::Status CheckBandwidth(const RehearsalSettings& settings,
                            const Bandwidth& bandwidth) {
  if (!(bandwidth.given >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("--", bandwidth.flag, "=",
                                                   bandwidth.given / 1e9,
                                                   " must not be negative"));
  }
  if (settings.fake_weights || bandwidth.given == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", bandwidth.flag, " is for --fake_weights, which was not given"));
}

absl::Status CheckBandwidths(const RehearsalSettings& settings) {
  for (const Bandwidth& each : {
           Bandwidth{"sim_memory_bandwidth", settings.memory_bandwidth},
           Bandwidth{"sim_link_bandwidth", settings.link_bandwidth},
           Bandwidth{"sim_network_bandwidth", settings.network_bandwidth},
       }) {
    TANDEM_RETURN_IF_ERROR(CheckBandwidth(settings, each));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRehearsal(const RehearsalSettings& settings,
                            const TrainOptions& options) {
  absl::Status checked = CheckBandwidths(settings);
  if (!checked.ok() || !settings.fake_weights) return checked;
  checked.Update(CheckDevices(options.devices));
  for (const Misfit& each : MisfitsOf(options)) {
    if (each.given) checked.Update(Refuse(each.why));
  }
  return checked;
}

}  // namespace tandem
