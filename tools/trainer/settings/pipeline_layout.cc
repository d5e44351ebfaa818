#include "tools/trainer/settings/pipeline_layout.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/validator.h"

namespace tandem {
namespace {

// Whether the schedule takes a multiple of its devices alone.
bool NeedsMultiple(const PipelineSettings& settings) {
  return settings.schedule == "interleaved_1f1b";
}

int64_t ChunksOf(const PipelineSettings& settings) {
  return settings.chunks > 0 ? settings.chunks : UsualChunks(settings.schedule);
}

// "--microbatches=5", or what else they come from.
std::string MicrobatchesAsGiven(const PipelineSettings& settings,
                                int64_t microbatches) {
  if (settings.microbatches > 0) {
    return absl::StrCat("--microbatches=", microbatches);
  }
  if (settings.microbatch_size > 0) {
    return absl::StrCat("--microbatch_size=", settings.microbatch_size, " (",
                        microbatches, " microbatches)");
  }
  return absl::StrCat(microbatches, " microbatches (set --microbatches)");
}

absl::StatusOr<Schedule> ScheduleOfFile(const PipelineSettings& settings,
                                        int64_t devices, int64_t batch_size) {
  TANDEM_ASSIGN_OR_RETURN(Schedule schedule,
                          ReadScheduleFile(settings.schedule));
  if (schedule.devices() != devices) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--schedule=", settings.schedule, " is for ", schedule.devices(),
        " devices (lines), but --pipe x --devices_per_rank are ", devices));
  }
  // As large as the executor's channels.
  TANDEM_RETURN_IF_ERROR(
      ValidateSchedule(schedule, {schedule.microbatches, 0}).status());
  if (settings.microbatches > 0 || settings.microbatch_size > 0) {
    PipelineSettings by_flags = settings;
    by_flags.schedule = "gpipe";
    TANDEM_ASSIGN_OR_RETURN(const int64_t asked,
                            MicrobatchesFor(by_flags, devices, batch_size));
    if (asked != schedule.microbatches) {
      return absl::InvalidArgumentError(
          absl::StrCat(MicrobatchesAsGiven(settings, asked),
                       ", but --schedule=", settings.schedule, " has ",
                       schedule.microbatches, ": leave the flag out"));
    }
  }
  if (schedule.microbatches <= batch_size) return schedule;
  return absl::InvalidArgumentError(absl::StrCat(
      "--schedule=", settings.schedule, " has ", schedule.microbatches,
      " microbatches: more than a step has samples (--batch_size=", batch_size,
      ")"));
}

// Microbatches of a step must be the same on any number of replicas.
absl::Status CheckGroups(const PipelineSettings& settings, int64_t replicas,
                         int64_t batch_size) {
  if (!settings.reproducible) return absl::OkStatus();
  const int64_t each = batch_size / replicas;
  if (each % settings.microbatch_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--microbatch_size=", settings.microbatch_size,
                     " does not divide the ", each, " samples that each of ",
                     replicas, " replicas has of --batch_size=", batch_size,
                     ", as --reproducible needs it"));
  }
  const int64_t all = batch_size / settings.microbatch_size;
  const int64_t groups = settings.gradient_groups;
  if (groups == 0 || (all % groups == 0 && groups % replicas == 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--gradient_groups=", groups, ": the number of replicas, ", replicas,
      ", must divide it, and it the number of microbatches, ", all));
}

}  // namespace

absl::Status CheckLayout(const PipelineSettings& settings,
                         const PipelineSurroundings& around, int world_size) {
  if (!IsPipeline(settings, around)) return absl::OkStatus();
  if (world_size % settings.pipe != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pipe=", settings.pipe,
                     " does not divide the number of "
                     "ranks, ",
                     world_size));
  }
  const int64_t replicas = world_size / settings.pipe;
  TANDEM_RETURN_IF_ERROR(CheckGroups(settings, replicas, around.batch_size));
  return ScheduleFor(settings, settings.pipe * around.devices_per_rank,
                     around.batch_size / replicas)
      .status();
}

absl::StatusOr<int64_t> MicrobatchesFor(const PipelineSettings& settings,
                                        int64_t devices, int64_t batch_size) {
  if (IsScheduleFile(settings.schedule)) {
    TANDEM_ASSIGN_OR_RETURN(const Schedule schedule,
                            ScheduleOfFile(settings, devices, batch_size));
    return schedule.microbatches;
  }
  if (settings.microbatches > 0) return settings.microbatches;
  if (settings.microbatch_size > 0) {
    return (batch_size + settings.microbatch_size - 1) /
           settings.microbatch_size;
  }
  const int64_t usual = std::min(2 * devices * ChunksOf(settings), batch_size);
  if (!NeedsMultiple(settings)) return usual;
  return std::max<int64_t>(usual / devices * devices, 1);
}

absl::StatusOr<Schedule> ScheduleFor(const PipelineSettings& settings,
                                     int64_t devices, int64_t batch_size) {
  if (IsScheduleFile(settings.schedule)) {
    return ScheduleOfFile(settings, devices, batch_size);
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t microbatches,
                          MicrobatchesFor(settings, devices, batch_size));
  if (NeedsMultiple(settings) && microbatches % devices != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        MicrobatchesAsGiven(settings, microbatches), ": --schedule=",
        settings.schedule, " takes a multiple of the pipeline's devices, ",
        devices, "; looped_bfs takes any number"));
  }
  return MakeSchedule(settings.schedule, {static_cast<int>(devices),
                                          static_cast<int>(ChunksOf(settings)),
                                          static_cast<int>(microbatches)});
}

}  // namespace tandem
