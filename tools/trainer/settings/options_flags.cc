// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <string>

#include "absl/flags/flag.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/options.h"

#define SETTING(kind, name, value, range, help) \
  ABSL_FLAG(tandem::setting::kind::Flag, name, value, help);
#include "tools/trainer/settings/all_settings.def"

namespace tandem {

absl::StatusOr<TrainOptions> TrainOptionsFromFlags() {
  TrainOptions options;
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::kind::Read(   \
      #name, absl::GetFlag(FLAGS_##name), &SETTINGS.name));
#include "tools/trainer/settings/all_settings.def"
  for (std::string* const each :
       {&options.dtype, &options.reduce_dtype, &options.buffer_dtype}) {
    *each = ShortDtypeName(*each);
  }
  // NCCL's work runs on streams.
  if (options.backend == "sim_nccl" && options.devices.device == "sim") {
    options.devices.sim_async = true;
  }
  TANDEM_RETURN_IF_ERROR(Validate(options));
  return options;
}

}  // namespace tandem
