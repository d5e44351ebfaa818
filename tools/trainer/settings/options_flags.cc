// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <string>

#include "absl/flags/flag.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/options.h"

#define SETTING(kind, name, value, range, help) \
  ABSL_FLAG(tandem::setting::kind::Flag, name, value, help);
#include "tools/trainer/settings/train_settings.def"
#define SETTING(kind, name, value, range, help) \
  ABSL_FLAG(tandem::setting::kind::Flag, name, value, help);
#include "tools/trainer/settings/image_settings.def"
#define SETTING(kind, name, value, range, help) \
  ABSL_FLAG(tandem::setting::kind::Flag, name, value, help);
#include "tools/trainer/settings/device_settings.def"
#define SETTING(kind, name, value, range, help) \
  ABSL_FLAG(tandem::setting::kind::Flag, name, value, help);
#include "tools/trainer/settings/pipeline_settings.def"
#define SETTING(kind, name, value, range, help) \
  ABSL_FLAG(tandem::setting::kind::Flag, name, value, help);
#include "tools/trainer/settings/ddp_settings.def"

namespace tandem {
namespace {

// Reads a flag into the field of its name.
#define SETTING_READ(kind, name)              \
  TANDEM_RETURN_IF_ERROR(setting::kind::Read( \
      #name, absl::GetFlag(FLAGS_##name), &settings.name));

absl::Status ReadFlags(TrainOptions& settings) {
#define SETTING(kind, name, value, range, help) SETTING_READ(kind, name)
#include "tools/trainer/settings/train_settings.def"
  return absl::OkStatus();
}

absl::Status ReadFlags(ImageSettings& settings) {
#define SETTING(kind, name, value, range, help) SETTING_READ(kind, name)
#include "tools/trainer/settings/image_settings.def"
  return absl::OkStatus();
}

absl::Status ReadFlags(DeviceSettings& settings) {
#define SETTING(kind, name, value, range, help) SETTING_READ(kind, name)
#include "tools/trainer/settings/device_settings.def"
  return absl::OkStatus();
}

absl::Status ReadFlags(PipelineSettings& settings) {
#define SETTING(kind, name, value, range, help) SETTING_READ(kind, name)
#include "tools/trainer/settings/pipeline_settings.def"
  return absl::OkStatus();
}

absl::Status ReadFlags(DdpSettings& settings) {
#define SETTING(kind, name, value, range, help) SETTING_READ(kind, name)
#include "tools/trainer/settings/ddp_settings.def"
  return absl::OkStatus();
}

#undef SETTING_READ

}  // namespace

absl::StatusOr<TrainOptions> TrainOptionsFromFlags() {
  TrainOptions options;
  TANDEM_RETURN_IF_ERROR(ReadFlags(options));
  TANDEM_RETURN_IF_ERROR(ReadFlags(options.images));
  TANDEM_RETURN_IF_ERROR(ReadFlags(options.devices));
  TANDEM_RETURN_IF_ERROR(ReadFlags(options.pipeline));
  TANDEM_RETURN_IF_ERROR(ReadFlags(options.ddp));
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
