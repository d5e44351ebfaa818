#include "tools/trainer/settings/device_settings.h"

#include "absl/strings/str_cat.h"
#include "core/base/byte_size.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

bool IsMemory(const std::string& text) {
  const auto bytes = ParseByteSize(text);
  return bytes.ok() && *bytes > 0;
}

absl::Status CheckTogether(const DeviceSettings& settings) {
  const bool has_memory = !settings.device_memory.empty();
  const bool is_sim = settings.device == "sim";
  const bool delays = settings.sim_delay_us > 0;
  const bool has_delay_seed = settings.sim_delay_seed > 0;
  return CheckRules({
      {has_memory && !IsMemory(settings.device_memory),
       absl::StrCat("--device_memory=", settings.device_memory,
                    ": expected a size like 80GiB or 512MiB")},
      {!settings.cut.empty() && settings.devices_per_rank == 1,
       absl::StrCat("--cut=", settings.cut,
                    " needs several devices: set --devices_per_rank")},
      {settings.share_devices && settings.device == "cpu",
       "--share_devices is for GPUs and simulated devices, and all share the "
       "CPU: leave it out, or set --device=cuda or --device=sim"},
      {!is_sim && (has_memory || settings.sim_async),
       absl::StrCat(settings.sim_async ? "--sim_async" : "--device_memory",
                    " is for simulated devices: set --device=sim, not ",
                    settings.device)},
      {!settings.sim_async && (delays || has_delay_seed),
       "--sim_delay_us and --sim_delay_seed need --sim_async"},
      {has_delay_seed && !delays,
       absl::StrCat("--sim_delay_seed=", settings.sim_delay_seed,
                    " is of --sim_delay_us, which is 0: give both")},
  });
}

}  // namespace

absl::Status Validate(const DeviceSettings& settings) {
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::range.Check(#name, settings.name));
#include "tools/trainer/settings/device_settings.def"
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
