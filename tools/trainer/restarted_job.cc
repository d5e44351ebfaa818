#include "tools/trainer/restarted_job.h"

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/folder/step_folders.h"
#include "tools/trainer/checkpoints/resume.h"

namespace tandem {
namespace {

// Or what was one.
bool HasCheckpoint(const std::string& folder) {
  return !folder.empty() && !StepFolders(folder).empty();
}

}  // namespace

std::string NewestCheckpoint(const std::string& save_dir) {
  if (save_dir.empty()) return "";
  const std::vector<StepFolder> all = CompleteCheckpoints(save_dir);
  return all.empty() ? "" : all.front().path;
}

absl::Status MixesJobs(const std::string& save_dir, const std::string& newest,
                       int64_t step) {
  return absl::FailedPreconditionError(absl::StrCat(
      "--save_dir=", save_dir, " has checkpoints of another job, up to ",
      newest, ", and this one is at step ", step,
      ": theirs would be taken for its own. Give --resume=", kResumeAuto,
      " to go on from them, or another --save_dir"));
}

absl::Status CheckSaveFolderIsFree(const TrainOptions& options,
                                   RestartCount restarts) {
  if (restarts.done > 0 || options.eval_only || !options.resume.empty() ||
      options.save_dir.empty()) {
    return absl::OkStatus();
  }
  const std::vector<StepFolder> all = CompleteCheckpoints(options.save_dir);
  if (all.empty() || all.front().step == 0) return absl::OkStatus();
  return MixesJobs(options.save_dir, all.front().path, /*step=*/0);
}

std::string DescribeAttempt(const Job& job) {
  return absl::StrCat(
      "attempt ", job.restarts.done + 1, ": ", job.mesh.world_size(),
      job.mesh.world_size() == 1 ? " rank" : " ranks", " (",
      job.mesh.ToString(), "); each replica has ", job.batch_size_per_replica,
      " of a step's ", job.options.batch_size, " samples");
}

absl::Status ResumeAfterRestart(Job& job) {
  if (!job.is_restarted()) return absl::OkStatus();
  TrainOptions& options = job.options;
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      job.world->AllGatherString(
          HasCheckpoint(options.save_dir) ? kResumeAuto : options.resume,
          [] { return std::string("what a restarted job goes on from"); }));
  options.resume = all.front();
  return absl::OkStatus();
}

}  // namespace tandem
