#include "tools/trainer/job_check.h"

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/launch/flags.h"
#include "core/launch/restarts.h"
#include "core/mesh/mesh.h"
#include "core/replace/job_member.h"
#include "tools/trainer/checkpoints/resume.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/rehearsal/rehearsal_settings.h"
#include "tools/trainer/replacement/replacement.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

// Whether the folder has a checkpoint, complete or not.
bool HasCheckpoint(const std::string& folder) {
  return !folder.empty() && !StepFolders(folder).empty();
}

// The newest complete checkpoint of a folder of them; "" where there is none.
std::string NewestCheckpoint(const std::string& save_dir) {
  if (save_dir.empty()) return "";
  const std::vector<StepFolder> all = CompleteCheckpoints(save_dir);
  return all.empty() ? "" : all.front().path;
}

// The error of MixedJobsError where a job is to begin anew in a folder with
// checkpoints.
absl::Status CheckSaveFolderIsFree(const TrainOptions& options,
                                   RestartCount restarts) {
  if (restarts.done > 0 || options.eval_only || !options.resume.empty() ||
      options.save_dir.empty()) {
    return absl::OkStatus();
  }
  const std::vector<StepFolder> all = CompleteCheckpoints(options.save_dir);
  if (all.empty() || all.front().step == 0) return absl::OkStatus();
  return MixedJobsError(options.save_dir, all.front().path, /*step=*/0);
}

// Whether this number of ranks is another one's choice, or may change.
bool RankCountMayChange(const Launch& first) {
  const LaunchSettings given = LaunchSettingsFromFlags();
  const bool is_ours = first.launcher == "none" || first.launcher == "tandem";
  return !is_ours || given.min_ranks.has_value() || given.max_ranks.has_value();
}

absl::Status CheckUseOfReplicas(const TrainOptions& settings,
                                const Launch& first) {
  TANDEM_ASSIGN_OR_RETURN(const Mesh mesh, JobMesh(settings, first.world_size));
  if (mesh.replicas() > 1 || RankCountMayChange(first)) return absl::OkStatus();
  return CheckForOneReplica(settings);
}

}  // namespace

absl::Status MixedJobsError(const std::string& save_dir,
                            const std::string& newest, int64_t step) {
  return absl::FailedPreconditionError(absl::StrCat(
      "--save_dir=", save_dir, " has checkpoints of another job, up to ",
      newest, ", and this one is at step ", step,
      ": theirs would be taken for its own. Give --resume=", kResumeAuto,
      " to go on from them, or another --save_dir"));
}

std::string DescribeAttempt(const Job& job) {
  return absl::StrCat(
      "attempt ", job.restarts.done + 1, ": ", job.mesh.world_size(),
      job.mesh.world_size() == 1 ? " rank" : " ranks", " (",
      job.mesh.ToString(), "); each replica has ", job.batch_size_per_replica,
      " of a step's ", ResolvedBatchSize(job.options), " samples");
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

absl::Status CheckJob(const Launch& first) {
  const Environment environment = Environment::OfProcess();
  TANDEM_ASSIGN_OR_RETURN(const TrainOptions settings, TrainOptionsFromFlags());
  TANDEM_ASSIGN_OR_RETURN(const RestartCount restarts,
                          ReadRestartCount(environment));
  TANDEM_ASSIGN_OR_RETURN(const int life, RankLife(environment));
  // A rank that is started again finds the job's own checkpoints.
  const RehearsalSettings rehearsal = RehearsalSettingsFromFlags();
  if (life == 0 && !rehearsal.fake_weights) {
    TANDEM_RETURN_IF_ERROR(CheckSaveFolderIsFree(settings, restarts));
  }
  TANDEM_RETURN_IF_ERROR(CheckReplacement(settings, first));
  TANDEM_RETURN_IF_ERROR(CheckRehearsal(rehearsal, settings));
  TANDEM_RETURN_IF_ERROR(CheckLayout(settings, first.world_size));
  return CheckUseOfReplicas(settings, first);
}

bool CanBeLost(int rank) {
  const absl::StatusOr<TrainOptions> settings = TrainOptionsFromFlags();
  if (!settings.ok()) return false;
  const int servers = ParameterServerCount(*settings);
  return servers > 0 && rank >= servers;
}

std::string RestartCheckpoint() {
  const absl::StatusOr<TrainOptions> settings = TrainOptionsFromFlags();
  return settings.ok() ? NewestCheckpoint(settings->save_dir) : "";
}

int MaxReplacements() {
  const absl::StatusOr<TrainOptions> settings = TrainOptionsFromFlags();
  return settings.ok() ? static_cast<int>(settings->replace_replicas) : 0;
}

}  // namespace tandem
