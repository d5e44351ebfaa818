#include "tools/trainer/job_check.h"

#include "absl/status/statusor.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/launch/flags.h"
#include "core/launch/restarts.h"
#include "core/mesh/mesh.h"
#include "core/replace/job_member.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/rehearsal/rehearsal_settings.h"
#include "tools/trainer/replacement/replacement.h"
#include "tools/trainer/restarted_job.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

// Whether this number of ranks is another one's choice, or may change.
bool MayChange(const Launch& first) {
  const LaunchSettings given = LaunchSettingsFromFlags();
  const bool is_ours = first.launcher == "none" || first.launcher == "tandem";
  return !is_ours || given.min_ranks.has_value() || given.max_ranks.has_value();
}

absl::Status CheckUseOfReplicas(const TrainOptions& settings,
                                const Launch& first) {
  TANDEM_ASSIGN_OR_RETURN(const Mesh mesh, MeshOf(settings, first.world_size));
  if (mesh.data() > 1 || MayChange(first)) return absl::OkStatus();
  return CheckForOneReplica(settings);
}

}  // namespace

absl::Status CheckJob(const Launch& first) {
  const Environment environment = Environment::OfProcess();
  TANDEM_ASSIGN_OR_RETURN(const TrainOptions settings, TrainOptionsFromFlags());
  TANDEM_ASSIGN_OR_RETURN(const RestartCount restarts,
                          ReadRestartCount(environment));
  TANDEM_ASSIGN_OR_RETURN(const int life, LifeOf(environment));
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
  const int servers = ServersOf(*settings);
  return servers > 0 && rank >= servers;
}

std::string CheckpointOfRestart() {
  const absl::StatusOr<TrainOptions> settings = TrainOptionsFromFlags();
  return settings.ok() ? NewestCheckpoint(settings->save_dir) : "";
}

int MaxReplacements() {
  const absl::StatusOr<TrainOptions> settings = TrainOptionsFromFlags();
  return settings.ok() ? static_cast<int>(settings->replace_replicas) : 0;
}

}  // namespace tandem
