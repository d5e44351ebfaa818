#include "tools/trainer/checkpoints/resume.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/checkpoint/row_parts.h"
#include "core/comm/group_agreement.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/checkpoints/job_progress.h"

namespace tandem {
namespace {

bool IsAuto(const Job& job) { return job.options.resume == kResumeAuto; }

// Those of --save_dir that rank 0 sees, on all ranks: a folder may change
// meanwhile.
absl::StatusOr<std::vector<std::string>> NewestFirst(const Job& job) {
  std::string text;
  for (const StepFolder& each : CompleteCheckpoints(job.options.save_dir)) {
    AppendField(each.path, &text);
  }
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      job.world->AllGatherString(text, [] { return "which checkpoints"; }));
  std::vector<std::string> paths;
  absl::string_view rest = all.front();
  while (const auto path = TakeField(&rest)) paths.emplace_back(*path);
  return paths;
}

// What a path names may differ from host to host: CompareProgress tells.
absl::StatusOr<std::vector<std::string>> Candidates(const Job& job) {
  if (IsAuto(job)) return NewestFirst(job);
  const auto path = CheckpointAt(job.options.resume);
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(path.status(), "found a checkpoint", *job.world));
  return std::vector<std::string>{*path};
}

// Reads this rank's part, and changes nothing.
absl::Status Check(const StoredCheckpoint& checkpoint, const Job& job) {
  const Strategy& strategy = *job.strategy;
  TANDEM_RETURN_IF_ERROR(strategy.CheckModelState(checkpoint.model));
  if (job.options.eval_only) return absl::OkStatus();
  return strategy.CheckOptimizerState(checkpoint.optimizer);
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
  TANDEM_RETURN_IF_ERROR(AgreeOnSuccess(Check(*checkpoint, job),
                                        "verified the checkpoint", *job.world));
  return checkpoint;
}

}  // namespace

absl::Status LoadCheckpoint(const StoredCheckpoint& checkpoint,
                            const std::string& from, Job& job) {
  Strategy& strategy = *job.strategy;
  if (!job.options.eval_only) {
    TANDEM_RETURN_IF_ERROR(Annotate(
        ResumeScale(checkpoint.progress, strategy.loss_scale()), from));
    TANDEM_RETURN_IF_ERROR(strategy.LoadOptimizerState(checkpoint.optimizer));
  }
  TANDEM_RETURN_IF_ERROR(strategy.LoadModelState(checkpoint.model));
  strategy.ResumeAt(checkpoint.progress.step);
  return absl::OkStatus();
}

absl::StatusOr<Resumed> ResumeJob(Job& job) {
  Resumed resumed;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                          Candidates(job));
  for (const std::string& path : paths) {
    const auto checkpoint = Verified(job, path);
    if (IsAuto(job) && absl::IsDataLoss(checkpoint.status())) {
      resumed.lines.push_back(
          absl::StrCat("skipped: ", checkpoint.status().message()));
      continue;
    }
    TANDEM_RETURN_IF_ERROR(checkpoint.status());
    TANDEM_RETURN_IF_ERROR(LoadCheckpoint(*checkpoint, path, job));
    resumed.position = PositionOf(checkpoint->progress);
    resumed.lines.push_back(
        absl::StrFormat("resumed %s at step %d", path, resumed.position->step));
    return resumed;
  }
  const std::string none = absl::StrCat(
      "--resume=auto: no checkpoint to go on from in ", job.options.save_dir);
  if (job.options.eval_only) return absl::NotFoundError(none);
  resumed.lines.push_back(absl::StrCat(none, ", begins anew"));
  return resumed;
}

}  // namespace tandem
