// Pipeline settings: what the trainer is asked about pipelines, the flags as a
// value.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_SETTINGS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_SETTINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {

// Flags of the same names; the table says what they mean.
struct PipelineSettings {
#define SETTING(kind, name, value, range, help) \
  setting::kind::Field name = setting::kind::Of(value);
#include "tools/trainer/settings/pipeline_settings.def"
};

// What else decides about a pipeline.
struct PipelineSurroundings {
  std::string strategy = "auto";
  int64_t devices_per_rank = 1;
  int64_t batch_size = 1;  // of all ranks together
  std::string cut;
};

// Is it a pipeline that is asked for, or several side by side? Whatever is to
// be reproducible is one, perhaps of one stage.
bool IsPipeline(const PipelineSettings& settings,
                const PipelineSurroundings& around);

// Has each device of a rank a replica of the model?
bool IsDataParallel(const PipelineSurroundings& around);

// Whether each is in its range, and they fit together and to what is around
// them; the error names the flag, what was given and what it takes.
absl::Status Validate(const PipelineSettings& settings,
                      const PipelineSurroundings& around);

// What ParseBalance takes: --balance, or --cut, or "parameters".
std::string BalanceFor(const PipelineSettings& settings,
                       const std::string& cut);

// Every option as (flag name, value).
SettingValues Describe(const PipelineSettings& settings);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_SETTINGS_H_
