// What the trainer is asked about pipelines: the flags as a value.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_SETTINGS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_SETTINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// Flags of the same names (pipeline_settings_flags.cc tells what they mean).
struct PipelineSettings {
  int64_t pipe = 1;
  std::string schedule = "1f1b";
  int64_t chunks = 0;           // 0: as the schedule has it usually
  int64_t microbatches = 0;     // 0: by microbatch_size, or the usual number
  int64_t microbatch_size = 0;  // 0: by microbatches
  std::string balance;          // empty: --cut, else by parameters
  std::string checkpoint_activations = "never";
  bool deferred_batch_norm = false;
  int64_t weight_gradient_batch = 0;  // 0: off
  bool reproducible = false;
  int64_t gradient_groups = 0;  // 0: as many as microbatches
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

// Whether each is in its range, and they fit together and to what is around
// them; the error names the flag, what was given and what it takes.
absl::Status Validate(const PipelineSettings& settings,
                      const PipelineSurroundings& around);

// What ParseBalance takes: --balance, or --cut, or "parameters".
std::string BalanceFor(const PipelineSettings& settings,
                       const std::string& cut);

// Every option as (flag name, text).
std::vector<std::pair<std::string, std::string>> Describe(
    const PipelineSettings& settings);

// Of the flags; not checked.
PipelineSettings PipelineSettingsFromFlags();

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_SETTINGS_H_
