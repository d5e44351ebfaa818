// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include "absl/flags/flag.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/pipeline_settings.h"

#define SETTING(kind, name, value, range, help) \
  ABSL_FLAG(tandem::setting::kind::Flag, name, value, help);
#include "tools/trainer/settings/pipeline_settings.def"

namespace tandem {

absl::StatusOr<PipelineSettings> PipelineSettingsFromFlags() {
  PipelineSettings settings;
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::kind::Read(   \
      #name, absl::GetFlag(FLAGS_##name), &settings.name));
#include "tools/trainer/settings/pipeline_settings.def"
  return settings;
}

}  // namespace tandem
