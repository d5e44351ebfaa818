#include "tools/trainer/checkpoints/resume.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/checkpoint/row_parts.h"
#include "core/comm/group_agreement.h"
#include "core/weights/load_plan.h"
#include "models/lora/merged_weights.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/checkpoints/job_progress.h"

namespace tandem {
namespace {

// Whether replicas have parameters that are not alike.
bool HasOwnParameters(const Job& job) {
  return job.mesh.replicas() > 1 &&
         !job.options.ddp.parameters_to_ignore.empty();
}

bool IsAuto(const Job& job) { return job.options.resume == kResumeAuto; }

struct Candidates {
  // The checkpoints of a folder, the newest first; or the one that was named.
  std::vector<std::string> paths;
  std::string folder;  // empty: one was named
  // What folders in it that are no checkpoints lack.
  std::vector<std::string> unusable;
};

// Why it is no checkpoint; empty: there is nothing in it that could be lost.
std::string WhatItLacks(const StepFolder& found) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(found.path, error);
  if (!is_folder || std::filesystem::is_empty(found.path, error)) return "";
  return absl::StrCat(found.path, ": it has no ", kManifestFile);
}

Candidates CandidatesIn(const std::string& folder) {
  Candidates candidates;
  candidates.folder = folder;
  for (const StepFolder& each : StepFolders(folder)) {
    if (IsCheckpointFolder(each.path)) {
      candidates.paths.push_back(each.path);
    } else if (std::string lack = WhatItLacks(each); !lack.empty()) {
      candidates.unusable.push_back(std::move(lack));
    }
  }
  return candidates;
}

absl::StatusOr<Candidates> Look(const Job& job) {
  const std::string& resume = job.options.resume;
  if (IsAuto(job)) return CandidatesIn(job.options.save_dir);
  std::error_code error;
  if (!std::filesystem::exists(resume, error) && !error) {
    return absl::NotFoundError(
        absl::StrCat("--resume=", resume, ": there is no such folder or file"));
  }
  TANDEM_ASSIGN_OR_RETURN(std::string path, CheckpointAt(resume));
  // What it holds itself may have the newest of several.
  if (path != resume && IsCheckpointFolder(path)) return CandidatesIn(resume);
  Candidates named;
  named.paths.push_back(std::move(path));
  return named;
}

std::string Encode(const absl::StatusOr<Candidates>& found) {
  std::string text;
  AppendField(EncodeStatus(found.status()), &text);
  if (!found.ok()) return text;
  AppendField(found->folder, &text);
  for (const auto* list : {&found->paths, &found->unusable}) {
    AppendNumber(static_cast<int64_t>(list->size()), &text);
    for (const std::string& each : *list) AppendField(each, &text);
  }
  return text;
}

Candidates Decode(absl::string_view text) {
  Candidates found;
  found.folder = std::string(TakeField(&text).value_or(""));
  for (auto* list : {&found.paths, &found.unusable}) {
    for (int64_t left = TakeInt64(&text).value_or(0); left > 0; --left) {
      list->emplace_back(TakeField(&text).value_or(""));
    }
  }
  return found;
}

// Candidates as rank 0 sees them, on all ranks: a folder may change meanwhile,
// and differ from host to host (CompareProgress tells).
absl::StatusOr<Candidates> SharedCandidates(const Job& job) {
  const std::string mine = job.is_rank_zero() ? Encode(Look(job)) : "";
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      job.world->AllGatherString(mine, [] { return "which checkpoints"; }));
  absl::string_view rest = all.front();
  TANDEM_RETURN_IF_ERROR(Verdict({std::string(TakeField(&rest).value_or(""))}));
  return Decode(rest);
}

// There are some, but none that can be used.
absl::Status NoneIsUsable(const Candidates& candidates,
                          const std::vector<std::string>& why, const Job& job) {
  return absl::FailedPreconditionError(absl::StrCat(
      "--resume=", job.options.resume, ": none of the checkpoints in ",
      candidates.folder, " can be used: ", ShortList(why, /*most=*/8, "; "),
      ". Put back what they lack, or move them away to begin anew"));
}

// `status`, of a model that has no place for what the checkpoint at `path` has,
// or lacks it: with the data where these are others, for they decide the
// model's shape.
absl::Status ExplainModelState(const absl::Status& status,
                               const std::string& path,
                               const TrainingProgress& progress,
                               const Job& job) {
  if (!absl::IsInvalidArgument(status)) return status;
  const std::string differences = DataDifferences(progress, job);
  return absl::InvalidArgumentError(absl::StrCat(
      "--resume=", path, ": ", status.message(),
      differences.empty()
          ? ""
          : absl::StrCat("; the data differ (", differences,
                         "): give the same --dataset, --data_dir, --image_size "
                         "and so on")));
}

// Reads this rank's part, and changes nothing.
absl::Status Check(const StoredCheckpoint& checkpoint, const std::string& path,
                   const Job& job) {
  const Strategy& strategy = *job.strategy;
  const bool evaluates = job.options.eval_only;
  TANDEM_RETURN_IF_ERROR(ExplainModelState(
      strategy.CheckModelState(evaluates ? InferenceWeights(checkpoint)
                                         : checkpoint.model),
      path, checkpoint.progress, job));
  if (evaluates) return absl::OkStatus();
  return ExplainOptimizerState(
      strategy.CheckOptimizerState(checkpoint.optimizer), path,
      checkpoint.progress, job);
}

absl::StatusOr<StoredCheckpoint> OpenFor(const Job& job,
                                         const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(StoredCheckpoint checkpoint, OpenCheckpointAt(path));
  TANDEM_RETURN_IF_ERROR(CheckFits(path, checkpoint.progress, job));
  checkpoint.model = DivideRows(checkpoint.model, job.row_parts);
  checkpoint.optimizer = DivideRows(checkpoint.optimizer, job.row_parts);
  return checkpoint;
}

// Opened and verified by all ranks, or an error that is the same on all.
absl::StatusOr<StoredCheckpoint> Verified(const Job& job,
                                          const std::string& path) {
  auto checkpoint = OpenFor(job, path);
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(checkpoint.status(), "opened the checkpoint", *job.world));
  TANDEM_RETURN_IF_ERROR(CompareProgress(job, path, checkpoint->progress));
  TANDEM_RETURN_IF_ERROR(AgreeOnSuccess(Check(*checkpoint, path, job),
                                        "verified the checkpoint", *job.world));
  return checkpoint;
}

// Whether what is stored is this model's.
absl::Status CheckTensors(const StoredCheckpoint& checkpoint,
                          const std::string& path, const Job& job,
                          const std::vector<TensorInfo>& model) {
  const StoredTensors stored =
      job.options.eval_only ? InferenceWeights(checkpoint) : checkpoint.model;
  return ExplainModelState(PlanLoading(stored, model, {}, {}).status(), path,
                           checkpoint.progress, job);
}

// Where there is nothing to go on from.
absl::StatusOr<Resumed> BeginAnew(const Job& job) {
  const std::string none = absl::StrCat(
      "--resume=auto: no checkpoint to go on from in ", job.options.save_dir);
  if (job.options.eval_only) return absl::NotFoundError(none);
  Resumed resumed;
  resumed.lines.push_back(absl::StrCat(none, ", begins anew"));
  return resumed;
}

// What a job that is resumed without --init_from says of its frozen weights.
absl::Status KeepBase(const TrainingProgress& progress, Job& job) {
  if (!job.adapters || !job.adapters->base.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::optional<LoraRecord> record,
                          ReadLoraRecord(progress.options));
  if (record) job.adapters->base = record->base;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Resumed> PlanResume(const Job& job,
                                   const std::vector<TensorInfo>& model) {
  Resumed resumed;
  TANDEM_ASSIGN_OR_RETURN(const Candidates candidates, Look(job));
  std::vector<std::string> unusable = candidates.unusable;
  for (const std::string& path : candidates.paths) {
    const auto checkpoint = OpenCheckpointAt(path);
    if (!candidates.folder.empty() && absl::IsDataLoss(checkpoint.status())) {
      unusable.emplace_back(checkpoint.status().message());
      continue;
    }
    TANDEM_RETURN_IF_ERROR(checkpoint.status());
    TANDEM_RETURN_IF_ERROR(CheckFits(path, checkpoint->progress, job));
    TANDEM_RETURN_IF_ERROR(CheckTensors(*checkpoint, path, job, model));
    resumed.position = PositionIn(job, checkpoint->progress);
    resumed.path = path;
    resumed.job = checkpoint->progress.job;
    resumed.lines = {
        absl::StrFormat("from %s, step %d", path, resumed.position->step)};
    for (std::string& line : DescribeChanges(checkpoint->progress, job)) {
      resumed.lines.push_back(std::move(line));
    }
    return resumed;
  }
  if (!unusable.empty()) return NoneIsUsable(candidates, unusable, job);
  return BeginAnew(job);
}

absl::Status LoadCheckpoint(const StoredCheckpoint& checkpoint,
                            const std::string& from, Job& job) {
  Strategy& strategy = *job.strategy;
  if (job.options.eval_only) {
    TANDEM_RETURN_IF_ERROR(
        strategy.LoadModelState(InferenceWeights(checkpoint)));
  } else {
    TANDEM_RETURN_IF_ERROR(Annotate(
        ResumeScale(checkpoint.progress, strategy.loss_scale()), from));
    TANDEM_RETURN_IF_ERROR(strategy.LoadOptimizerState(checkpoint.optimizer));
    TANDEM_RETURN_IF_ERROR(strategy.LoadModelState(checkpoint.model));
  }
  strategy.ResumeAt(checkpoint.progress.step);
  return absl::OkStatus();
}

absl::StatusOr<Resumed> ResumeJob(Job& job) {
  Resumed resumed;
  TANDEM_ASSIGN_OR_RETURN(const Candidates candidates, SharedCandidates(job));
  std::vector<std::string> unusable = candidates.unusable;
  for (const std::string& path : candidates.paths) {
    const auto checkpoint = Verified(job, path);
    if (!candidates.folder.empty() && absl::IsDataLoss(checkpoint.status())) {
      unusable.emplace_back(checkpoint.status().message());
      continue;
    }
    TANDEM_RETURN_IF_ERROR(checkpoint.status());
    TANDEM_RETURN_IF_ERROR(LoadCheckpoint(*checkpoint, path, job));
    TANDEM_RETURN_IF_ERROR(KeepBase(checkpoint->progress, job));
    resumed.position = PositionIn(job, checkpoint->progress);
    resumed.path = path;
    resumed.job = checkpoint->progress.job;
    for (const std::string& each : unusable) {
      resumed.lines.push_back(absl::StrCat("skipped: ", each));
    }
    resumed.lines.push_back(
        absl::StrFormat("resumed %s at step %d", path, resumed.position->step));
    if (job.options.eval_only) return resumed;
    for (std::string& line : DescribeChanges(checkpoint->progress, job)) {
      resumed.lines.push_back(std::move(line));
    }
    if (HasOwnParameters(job)) {
      resumed.lines.push_back(
          "each replica goes on from the first one's --parameters_to_ignore, "
          "which are those that a checkpoint has");
    }
    return resumed;
  }
  if (!unusable.empty()) return NoneIsUsable(candidates, unusable, job);
  return BeginAnew(job);
}

}  // namespace tandem
