#include "tools/trainer/rehearsal/rehearsal_settings.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

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

absl::Status CheckRanks(int world_size) {
  if (world_size == 1) return absl::OkStatus();
  return Refuse(absl::StrCat(
      "rehearses one rank, and ", world_size,
      " were asked for: its devices are the pipeline's, so give "
      "--devices_per_rank in the place of --pipe and --nproc_per_node"));
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
      {options.devices.cuda_graphs,
       "computes nothing that --cuda_graphs could capture"},
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
      {!options.metrics_file.empty(),
       "has no metrics: leave out --metrics_file"},
      {!options.trace_file.empty(),
       "has nothing to trace: leave out --trace_file"},
      {options.kernels == "measured",
       "cannot time kernels: leave out --kernels=measured"},
      {options.pipeline.balance == "profile",
       "cannot time layers: leave out --balance=profile"},
      {options.strategy == "data_parallel",
       "rehearses one replica: leave out --strategy=data_parallel"},
  };
}

absl::Status CheckBandwidth(const RehearsalSettings& settings) {
  if (!(settings.memory_bandwidth >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sim_memory_bandwidth=", settings.memory_bandwidth / 1e9,
                     " must not be negative"));
  }
  if (settings.fake_weights || settings.memory_bandwidth == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "--sim_memory_bandwidth is for --fake_weights, which was not given");
}

}  // namespace

absl::Status CheckRehearsal(const RehearsalSettings& settings,
                            const TrainOptions& options, int world_size) {
  absl::Status checked = CheckBandwidth(settings);
  if (!checked.ok() || !settings.fake_weights) return checked;
  checked.Update(CheckDevices(options.devices));
  checked.Update(CheckRanks(world_size));
  for (const Misfit& each : MisfitsOf(options)) {
    if (each.given) checked.Update(Refuse(each.why));
  }
  return checked;
}

}  // namespace tandem
