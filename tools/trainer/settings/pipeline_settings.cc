#include "tools/trainer/settings/pipeline_settings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "parallel/partition/partition.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/schedules.h"

namespace tandem {
namespace {

absl::Status CheckSchedule(const PipelineSettings& settings) {
  if (IsScheduleFile(settings.schedule)) {
    if (settings.chunks == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "--chunks=", settings.chunks,
        " was given, but the stages of --schedule=", settings.schedule,
        " are those of the file: leave the flag out"));
  }
  const std::vector<std::string> known = ScheduleNames();
  if (std::find(known.begin(), known.end(), settings.schedule) == known.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--schedule=", settings.schedule, ": unknown; known: ",
        absl::StrJoin(known, ", "), ", or a file (a path with a slash)"));
  }
  const int usual = UsualChunks(settings.schedule);
  const bool fixed = usual == 1 || settings.schedule == "zb_v";
  if (settings.chunks == 0 || settings.chunks == usual || !fixed) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--chunks=", settings.chunks, ": --schedule=", settings.schedule, " has ",
      usual, " stage(s) a device; interleaved_1f1b and looped_bfs take any"));
}

absl::Status CheckMicrobatches(const PipelineSettings& settings,
                               int64_t batch_size) {
  if (settings.microbatches > 0 && settings.microbatch_size > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--microbatches=", settings.microbatches, " and --microbatch_size=",
        settings.microbatch_size, " say the same thing twice: give one"));
  }
  const int64_t given =
      std::max(settings.microbatches, settings.microbatch_size);
  if (given <= batch_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      settings.microbatches > 0 ? "--microbatches=" : "--microbatch_size=",
      given, " is more than a step has samples (--batch_size=", batch_size,
      ")"));
}

absl::Status CheckBalance(const PipelineSettings& settings,
                          const PipelineSurroundings& around) {
  if (settings.balance.empty()) return absl::OkStatus();
  if (!around.cut.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--cut=", around.cut, " is another name of --balance=", around.cut,
        ", and --balance=", settings.balance, " was given: give one"));
  }
  if (settings.pipe * around.devices_per_rank == 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--balance=", settings.balance,
        " needs several devices: set --devices_per_rank or --pipe"));
  }
  return Annotate(ParseBalance(settings.balance).status(), "--balance");
}

// The first flag that is not as usual, of those that pipelines alone have;
// empty: none.
std::string FirstPipelineFlag(const PipelineSettings& settings) {
  for (const auto& [flag, value] :
       Differing(Describe(settings), Describe(PipelineSettings()))) {
    if (flag == "pipe" || flag == "balance") continue;
    return absl::StrCat("--", flag, "=", ToText(value));
  }
  return "";
}

absl::Status CheckStrategy(const PipelineSettings& settings,
                           const PipelineSurroundings& around) {
  const bool is_pipeline = IsPipeline(settings, around);
  if (settings.pipe > 1 && !is_pipeline) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pipe=", settings.pipe,
                     " needs --strategy=pipeline or hybrid, but --strategy=",
                     around.strategy, " was given"));
  }
  if (is_pipeline) {
    if (around.strategy == "hybrid" || settings.reproducible) {
      return absl::OkStatus();
    }
    if (settings.pipe * around.devices_per_rank > 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--strategy=pipeline needs several devices: set --devices_per_rank=N, "
        "for those of one rank, or --pipe=N, for ranks");
  }
  const std::string given = FirstPipelineFlag(settings);
  if (given.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(given, " is for pipelines, but --strategy=", around.strategy,
                   " was given: set --strategy=pipeline or hybrid, with "
                   "--devices_per_rank or --pipe"));
}

// Replicas within a rank: what they cannot have.
absl::Status CheckDataParallel(const PipelineSettings& settings,
                               const PipelineSurroundings& around) {
  if (!IsDataParallel(around)) return absl::OkStatus();
  if (settings.reproducible) {
    return absl::InvalidArgumentError(
        "--reproducible excludes --strategy=data_parallel: a microbatch that "
        "is "
        "divided over devices gives sums of other parts, and so other bits, "
        "with another --devices_per_rank; --strategy=ddp divides by whole "
        "microbatches");
  }
  if (settings.balance.empty() && around.cut.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      settings.balance.empty() ? "--cut=" : "--balance=",
      settings.balance.empty() ? around.cut : settings.balance,
      " says where to cut the model, but with --strategy=data_parallel each "
      "device has all of it: leave one out"));
}

// What would let the layout be seen in the result.
absl::Status CheckReproducible(const PipelineSettings& settings) {
  if (!settings.reproducible) {
    if (settings.gradient_groups == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--gradient_groups=", settings.gradient_groups,
                     " is for --reproducible: give both or none"));
  }
  if (settings.microbatch_size == 0) {
    return absl::InvalidArgumentError(
        "--reproducible needs --microbatch_size=SAMPLES: the same microbatches "
        "in every layout");
  }
  if (settings.weight_gradient_batch > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--weight_gradient_batch=", settings.weight_gradient_batch,
        " computes gradients of several microbatches together, which "
        "--reproducible cannot have: leave one out"));
  }
  if (settings.deferred_batch_norm) {
    return absl::InvalidArgumentError(
        "--deferred_batch_norm takes a replica's statistics together, which "
        "--reproducible cannot have: leave one out");
  }
  return absl::OkStatus();
}

}  // namespace

bool IsDataParallel(const PipelineSurroundings& around) {
  return around.strategy == "data_parallel";
}

bool IsPipeline(const PipelineSettings& settings,
                const PipelineSurroundings& around) {
  return settings.reproducible || around.strategy == "pipeline" ||
         around.strategy == "hybrid" ||
         (around.strategy == "auto" && settings.pipe > 1);
}

absl::Status Validate(const PipelineSettings& settings,
                      const PipelineSurroundings& around) {
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::range.Check(#name, settings.name));
#include "tools/trainer/settings/pipeline_settings.def"
  TANDEM_RETURN_IF_ERROR(CheckSchedule(settings));
  TANDEM_RETURN_IF_ERROR(CheckMicrobatches(settings, around.batch_size));
  TANDEM_RETURN_IF_ERROR(CheckDataParallel(settings, around));
  TANDEM_RETURN_IF_ERROR(CheckReproducible(settings));
  TANDEM_RETURN_IF_ERROR(CheckStrategy(settings, around));
  return CheckBalance(settings, around);
}

std::string BalanceFor(const PipelineSettings& settings,
                       const std::string& cut) {
  if (!settings.balance.empty()) return settings.balance;
  return cut.empty() ? "parameters" : cut;
}

SettingValues Describe(const PipelineSettings& settings) {
  return {
#define SETTING(kind, name, value, range, help) \
  {#name, setting::kind::ValueOf(settings.name)},
#include "tools/trainer/settings/pipeline_settings.def"
  };
}

}  // namespace tandem
