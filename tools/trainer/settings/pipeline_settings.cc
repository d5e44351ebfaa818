#include "tools/trainer/settings/pipeline_settings.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/edit_distance.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "parallel/partition/partition.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/validator.h"

namespace tandem {
namespace {

bool IsKnownSchedule(const std::string& name) {
  const std::vector<std::string> known = ScheduleNames();
  return std::find(known.begin(), known.end(), name) != known.end();
}

absl::Status CheckSchedule(const PipelineSettings& settings) {
  const bool is_file = IsScheduleFile(settings.schedule);
  const bool is_known = IsKnownSchedule(settings.schedule);
  const int usual = is_known ? UsualChunks(settings.schedule) : 0;
  const bool is_fixed = usual == 1 || settings.schedule == "zb_v";
  return CheckRules({
      {is_file && settings.chunks != 0,
       absl::StrCat(
           "--chunks=", settings.chunks,
           " was given, but the stages of --schedule=", settings.schedule,
           " are those of the file: leave the flag out")},
      {is_file && MeasuresMicrobatches(settings),
       absl::StrCat("--microbatches=auto was given, but the microbatches of "
                    "--schedule=",
                    settings.schedule,
                    " are those of the file: leave the flag out")},
      {!is_file && !is_known,
       absl::StrCat("--schedule=", settings.schedule,
                    ": unknown; choose one of ",
                    NamesNear(settings.schedule, ScheduleNames()),
                    ", or give a file (a path with a slash)")},
      {!is_file && settings.chunks != 0 && settings.chunks != usual && is_fixed,
       absl::StrCat("--chunks=", settings.chunks,
                    ": --schedule=", settings.schedule, " has ", usual,
                    " stage(s) a device; interleaved_1f1b and looped_bfs take "
                    "any")},
  });
}

// What --microbatches says; 0: another flag, a rule or a measurement does.
int64_t GivenMicrobatches(const PipelineSettings& settings) {
  return settings.microbatches.value_or(0);
}

// The first flag that is not as usual, of those that pipelines alone have;
// empty: none.
std::string FirstPipelineFlag(const PipelineSettings& settings) {
  return FirstBut(
      Differing(Describe(settings), Describe(PipelineSettings())),
      {"pipe", "tensor", "sequence_parallel", "balance", "microbatch_size"});
}

absl::Status CheckTogether(const PipelineSettings& settings,
                           const PipelineContext& around) {
  const int64_t given = GivenMicrobatches(settings);
  const int64_t microbatches = std::max(given, settings.microbatch_size);
  const bool measures = MeasuresMicrobatches(settings);
  const bool is_pipeline = IsPipeline(settings, around);
  const bool replicates = IsDataParallel(around);
  const bool is_balanced = !settings.balance.empty();
  const bool has_one_device = settings.pipe * around.devices_per_rank == 1;
  const std::string of_pipelines = FirstPipelineFlag(settings);
  return CheckRules({
      {measures && settings.reproducible,
       "--microbatches=auto goes by measured times, and another run may come "
       "to another number, which --reproducible cannot have: leave it out, "
       "and give --microbatch_size=SAMPLES"},
      {(measures || given > 0) && settings.microbatch_size > 0,
       absl::StrCat("--microbatches=", measures ? "auto" : absl::StrCat(given),
                    " and --microbatch_size=", settings.microbatch_size,
                    " say the same thing twice: give one")},
      {microbatches > around.batch_size,
       absl::StrCat(
           given > 0 ? "--microbatches=" : "--microbatch_size=", microbatches,
           " is more than a step has samples (--batch_size=", around.batch_size,
           ")")},
      // Replicas within a rank: what they cannot have.
      {replicates && settings.reproducible,
       "--reproducible excludes --strategy=data_parallel: a microbatch that is "
       "divided over devices gives sums of other parts, and so other bits, "
       "with another --devices_per_rank; --strategy=ddp divides by whole "
       "microbatches"},
      {replicates && is_balanced,
       absl::StrCat("--balance=", settings.balance,
                    " says where to cut the model, but with "
                    "--strategy=data_parallel each device has all of it: leave "
                    "one out")},
      {!settings.reproducible && settings.gradient_groups != 0,
       absl::StrCat("--gradient_groups=", settings.gradient_groups,
                    " is for --reproducible: give both or none")},
      {settings.reproducible && settings.microbatch_size == 0,
       "--reproducible needs --microbatch_size=SAMPLES: the same microbatches "
       "in every layout"},
      {!settings.sequence_parallel && settings.tensor == 1,
       "--sequence_parallel=false is about ranks that share each layer: give "
       "--tensor=RANKS as well"},
      {settings.pipe > 1 && !is_pipeline,
       absl::StrCat("--pipe=", settings.pipe,
                    " needs --strategy=pipeline or hybrid, but --strategy=",
                    around.strategy, " was given")},
      {is_pipeline && around.strategy != "hybrid" && !settings.reproducible &&
           has_one_device,
       "--strategy=pipeline needs several devices: set --devices_per_rank=N, "
       "for those of one rank, or --pipe=N, for ranks"},
      {!is_pipeline && !of_pipelines.empty(),
       absl::StrCat(of_pipelines,
                    " is for pipelines, but --strategy=", around.strategy,
                    " was given: set --strategy=pipeline or hybrid, with "
                    "--devices_per_rank or --pipe")},
      {has_one_device && (is_balanced || measures),
       absl::StrCat(is_balanced ? absl::StrCat("--balance=", settings.balance)
                                : "--microbatches=auto",
                    " needs several devices: set --devices_per_rank or "
                    "--pipe")},
  });
}

// Whether the schedule takes a multiple of its devices alone.
bool NeedsMultiple(const PipelineSettings& settings) {
  return settings.schedule == "interleaved_1f1b";
}

int64_t ChunksPerDevice(const PipelineSettings& settings) {
  return settings.chunks > 0 ? settings.chunks : UsualChunks(settings.schedule);
}

// Octaves of numbers of microbatches, of which --microbatches=auto tries one
// each: with 32 for each device the bubble of any schedule is below 4 %.
constexpr int kMostCandidates = 6;

// The samples, if all of so many microbatches were as large as the largest.
int64_t Padded(int64_t samples, int64_t microbatches) {
  return LargestMicrobatch(samples, microbatches, /*size=*/0) * microbatches;
}

// "--microbatches=5", or what else they come from.
std::string MicrobatchesAsGiven(const PipelineSettings& settings,
                                int64_t microbatches) {
  if (GivenMicrobatches(settings) > 0) {
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
  // Its channels are as large as the executor's.
  TANDEM_RETURN_IF_ERROR(
      ValidateSchedule(schedule, {schedule.microbatches, 0}).status());
  if (GivenMicrobatches(settings) > 0 || settings.microbatch_size > 0) {
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
  const int64_t all = batch_size / settings.microbatch_size;
  const int64_t groups = settings.gradient_groups;
  return CheckRules({
      {each % settings.microbatch_size != 0,
       absl::StrCat("--microbatch_size=", settings.microbatch_size,
                    " does not divide the ", each, " samples that each of ",
                    replicas, " replicas has of --batch_size=", batch_size,
                    ", as --reproducible needs it")},
      {groups != 0 && (all % groups != 0 || groups % replicas != 0),
       absl::StrCat(
           "--gradient_groups=", groups, ": the number of replicas, ", replicas,
           ", must divide it, and it the number of microbatches, ", all)},
  });
}

}  // namespace

int64_t RanksOfReplica(const PipelineSettings& settings) {
  return settings.pipe * settings.tensor;
}

bool IsDataParallel(const PipelineContext& around) {
  return around.strategy == "data_parallel";
}

bool MeasuresMicrobatches(const PipelineSettings& settings) {
  return !settings.microbatches.has_value();
}

bool IsPipeline(const PipelineSettings& settings,
                const PipelineContext& around) {
  return settings.reproducible || around.strategy == "pipeline" ||
         around.strategy == "hybrid" ||
         (around.strategy == "auto" && settings.pipe > 1);
}

absl::Status Validate(const PipelineSettings& settings,
                      const PipelineContext& around) {
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::range.Check(#name, settings.name));
#include "tools/trainer/settings/pipeline_settings.def"
  TANDEM_RETURN_IF_ERROR(CheckSchedule(settings));
  TANDEM_RETURN_IF_ERROR(CheckTogether(settings, around));
  if (settings.balance.empty()) return absl::OkStatus();
  return Annotate(ParseBalance(settings.balance).status(), "--balance");
}

std::string BalanceFor(const PipelineSettings& settings) {
  return settings.balance.empty() ? "parameters" : settings.balance;
}

SettingValues Describe(const PipelineSettings& settings) {
  return {
#define SETTING(kind, name, value, range, help) \
  {#name, setting::kind::ToValue(settings.name)},
#include "tools/trainer/settings/pipeline_settings.def"
  };
}

absl::Status CheckLayout(const PipelineSettings& settings,
                         const PipelineContext& around, int world_size) {
  if (!IsPipeline(settings, around)) return absl::OkStatus();
  const int64_t ranks = RanksOfReplica(settings);
  if (world_size % ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--pipe=", settings.pipe,
        settings.tensor > 1 ? absl::StrCat(" --tensor=", settings.tensor) : "",
        " does not divide the number of ranks, ", world_size));
  }
  const int64_t replicas = world_size / ranks;
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
  if (GivenMicrobatches(settings) > 0) return GivenMicrobatches(settings);
  if (settings.microbatch_size > 0) {
    return (batch_size + settings.microbatch_size - 1) /
           settings.microbatch_size;
  }
  const int64_t usual =
      std::min(2 * devices * ChunksPerDevice(settings), batch_size);
  if (!NeedsMultiple(settings)) return usual;
  return std::max<int64_t>(usual / devices * devices, 1);
}

int64_t LargestMicrobatch(int64_t samples, int64_t microbatches, int64_t size) {
  if (size > 0) return std::min(size, samples);
  return (samples + microbatches - 1) / microbatches;
}

std::vector<int64_t> MicrobatchCandidates(const PipelineSettings& settings,
                                          int64_t devices, int64_t batch_size) {
  const int64_t step = NeedsMultiple(settings) ? devices : 1;
  std::vector<int64_t> candidates;
  int64_t size_before = 0;
  for (int octave = 0; octave < kMostCandidates; ++octave) {
    const int64_t first = devices << octave;
    const int64_t end = std::min(2 * first, batch_size + 1);
    int64_t best = 0;
    for (int64_t each = first; each < end; each += step) {
      if (best == 0 || Padded(batch_size, each) < Padded(batch_size, best)) {
        best = each;
      }
    }
    if (best == 0) break;
    const int64_t size = LargestMicrobatch(batch_size, best, /*size=*/0);
    if (size != size_before) candidates.push_back(best);
    size_before = size;
  }
  if (candidates.empty()) candidates.push_back(batch_size);
  return candidates;
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
  return MakeSchedule(
      settings.schedule,
      {static_cast<int>(devices), static_cast<int>(ChunksPerDevice(settings)),
       static_cast<int>(microbatches)});
}

}  // namespace tandem
