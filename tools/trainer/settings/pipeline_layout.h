// Pipeline layout: a schedule, from the flags and the number of ranks.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_LAYOUT_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_LAYOUT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/schedule/schedule.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {

// All of these take settings that Validate accepts.

// Whether so many ranks can run it, with a schedule that can be made. Requires
// a batch that replicas can share.
absl::Status CheckLayout(const PipelineSettings& settings,
                         const PipelineSurroundings& around, int world_size);

// What a replica's `batch_size` samples of a step are cut into. Without
// --microbatches and --microbatch_size: twice as many as there are stages, at
// most the batch, and a multiple of `devices` where the schedule needs one. A
// file's schedule has its own number; InvalidArgument when flags contradict it
// or the batch has fewer samples.
absl::StatusOr<int64_t> MicrobatchesFor(const PipelineSettings& settings,
                                        int64_t devices, int64_t batch_size);

// The schedule for a pipeline of `devices` (pipe x devices_per_rank); a file's
// must have as many, and be one that ends. InvalidArgument, NotFound.
absl::StatusOr<Schedule> ScheduleFor(const PipelineSettings& settings,
                                     int64_t devices, int64_t batch_size);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_PIPELINE_LAYOUT_H_
