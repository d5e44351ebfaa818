// Pipeline settings: what the trainer is asked about pipelines, the flags as a
// value, and the layout that follows from them.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_SETTINGS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_SETTINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/schedule/schedule.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {

// Flags of the same names; the table says what they mean.
struct PipelineSettings {
#define SETTING(kind, name, value, range, help) \
  setting::kind::Field name = setting::kind::Of(value);
#include "tools/trainer/settings/pipeline_settings.def"
};

// What else decides about a pipeline.
struct PipelineContext {
  std::string strategy = "auto";
  int64_t devices_per_rank = 1;
  int64_t batch_size = 1;  // of all ranks together
};

// Ranks that hold a model together: along its pipeline, and in each layer.
int64_t RanksOfReplica(const PipelineSettings& settings);

// Is it a pipeline that is asked for, or several side by side? Whatever is to
// be reproducible is one, perhaps of one stage.
bool IsPipeline(const PipelineSettings& settings,
                const PipelineContext& around);

// Has each device of a rank a replica of the model?
bool IsDataParallel(const PipelineContext& around);

// Whether each is in its range, and they fit together and to what is around
// them; the error names the flag, what was given and what it takes.
absl::Status Validate(const PipelineSettings& settings,
                      const PipelineContext& around);

// Whether --microbatches=auto was given: layers are measured when a job starts,
// and until then the number is as if the flag were not there.
bool MeasuresMicrobatches(const PipelineSettings& settings);

// What ParseBalance takes: --balance, or "parameters".
std::string BalanceFor(const PipelineSettings& settings);

// Every option as (flag name, value).
SettingValues Describe(const PipelineSettings& settings);

// The layout: a schedule, from the flags and the number of ranks. All of these
// take settings that Validate accepts.

// Whether so many ranks can run it, with a schedule that can be made. Requires
// a batch that replicas can share.
absl::Status CheckLayout(const PipelineSettings& settings,
                         const PipelineContext& around, int world_size);

// What a replica's `batch_size` samples of a step are cut into. Without
// --microbatches and --microbatch_size: twice as many as there are stages, at
// most the batch, and a multiple of `devices` where the schedule needs one. A
// file's schedule has its own number; InvalidArgument when flags contradict it
// or the batch has fewer samples.
absl::StatusOr<int64_t> MicrobatchesFor(const PipelineSettings& settings,
                                        int64_t devices, int64_t batch_size);

// The samples of the largest of `microbatches` microbatches of `samples`, or of
// those of `size` samples (0: of no given size).
int64_t LargestMicrobatch(int64_t samples, int64_t microbatches, int64_t size);

// The numbers of microbatches that --microbatches=auto tries for a replica's
// `batch_size` samples, from few to many: about as many as there are devices,
// twice as many, and so on, six at most. Of the numbers from one of these to
// the next it is the one that the samples are shared by most evenly, and that
// the schedule takes; each makes microbatches of another size. The samples
// themselves where they are fewer than devices.
std::vector<int64_t> MicrobatchCandidates(const PipelineSettings& settings,
                                          int64_t devices, int64_t batch_size);

// The schedule for a pipeline of `devices` (pipe x devices_per_rank); a file's
// must have as many, and be one that ends. InvalidArgument, NotFound.
absl::StatusOr<Schedule> ScheduleFor(const PipelineSettings& settings,
                                     int64_t devices, int64_t batch_size);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_SETTINGS_H_
