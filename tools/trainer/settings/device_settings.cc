#include "tools/trainer/settings/device_settings.h"

#include "absl/strings/str_cat.h"
#include "core/base/byte_size.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

absl::Status CheckMemory(const DeviceSettings& settings) {
  if (settings.device_memory.empty()) return absl::OkStatus();
  const auto bytes = ParseByteSize(settings.device_memory);
  if (bytes.ok() && *bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--device_memory=", settings.device_memory,
                   ": expected a size like 80GiB or 512MiB"));
}

absl::Status CheckTogether(const DeviceSettings& settings) {
  if (!settings.cut.empty() && settings.devices_per_rank == 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--cut=", settings.cut,
                     " needs several devices: set --devices_per_rank"));
  }
  if (settings.share_devices && settings.device == "cpu") {
    return absl::InvalidArgumentError(
        "--share_devices is for GPUs and simulated devices, and all share the "
        "CPU: leave it out, or set --device=cuda or --device=sim");
  }
  if (settings.device != "sim" &&
      (!settings.device_memory.empty() || settings.sim_async)) {
    return absl::InvalidArgumentError(absl::StrCat(
        settings.sim_async ? "--sim_async" : "--device_memory",
        " is for simulated devices: set --device=sim, not ", settings.device));
  }
  if (!settings.sim_async &&
      (settings.sim_delay_us > 0 || settings.sim_delay_seed > 0)) {
    return absl::InvalidArgumentError(
        "--sim_delay_us and --sim_delay_seed need --sim_async");
  }
  if (settings.sim_delay_seed > 0 && settings.sim_delay_us == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sim_delay_seed=", settings.sim_delay_seed,
                     " is of --sim_delay_us, which is 0: give both"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const DeviceSettings& settings) {
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::range.Check(#name, settings.name));
#include "tools/trainer/settings/device_settings.def"
  TANDEM_RETURN_IF_ERROR(CheckMemory(settings));
  return CheckTogether(settings);
}

SettingValues Describe(const DeviceSettings& settings) {
  return {
#define SETTING(kind, name, value, range, help) \
  {#name, setting::kind::ValueOf(settings.name)},
#include "tools/trainer/settings/device_settings.def"
  };
}

}  // namespace tandem
