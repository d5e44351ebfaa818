#include "tools/trainer/settings/device_settings.h"

#include "absl/strings/str_cat.h"
#include "core/base/byte_size.h"
#include "tools/trainer/settings/flag_checks.h"

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
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const DeviceSettings& settings) {
  return FirstError({
      OneOf("device", settings.device, {"cpu", "cuda", "sim"}),
      Between("devices_per_rank", settings.devices_per_rank, 1, 128),
      Between("sim_delay_us", settings.sim_delay_us, 0, 1e6),
      CheckMemory(settings),
      CheckTogether(settings),
  });
}

std::vector<std::pair<std::string, std::string>> Describe(
    const DeviceSettings& settings) {
  return {
      {"device", settings.device},
      {"devices_per_rank", absl::StrCat(settings.devices_per_rank)},
      {"cut", settings.cut},
      {"device_memory", settings.device_memory},
      {"sim_async", settings.sim_async ? "true" : "false"},
      {"sim_delay_us", absl::StrCat(settings.sim_delay_us)},
      {"sim_delay_seed", absl::StrCat(settings.sim_delay_seed)},
  };
}

}  // namespace tandem
