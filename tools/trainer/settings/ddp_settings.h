// DDP settings: what the trainer is asked about --strategy=ddp.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_DDP_SETTINGS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_DDP_SETTINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {

// Flags of the same names; the table says what they mean.
struct DdpSettings {
#define SETTING(kind, name, value, range, help) \
  setting::kind::Field name = setting::kind::Of(value);
#include "tools/trainer/settings/ddp_settings.def"
};

// Whether each is in its range and they fit together; which names the model has
// is seen later.
absl::Status Validate(const DdpSettings& settings);

// Whether averaged parameters are more than their mean (DiLoCo).
bool HasOuterOptimizer(const DdpSettings& settings);

// Every setting as (flag name, value).
SettingValues Describe(const DdpSettings& settings);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_DDP_SETTINGS_H_
