// Device settings: which devices a job runs on, the flags as a value.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_DEVICE_SETTINGS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_DEVICE_SETTINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {

struct DeviceSettings {
#define SETTING(kind, name, value, range, help) \
  setting::kind::Field name = setting::kind::Of(value);
#include "tools/trainer/settings/device_settings.def"
};

// Each by itself and together; the error names the flag.
absl::Status Validate(const DeviceSettings& settings);

// Every option as (flag name, value).
SettingValues Describe(const DeviceSettings& settings);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_DEVICE_SETTINGS_H_
