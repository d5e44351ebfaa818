#include "tools/trainer/saving.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint.h"
#include "core/group_agreement.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "tools/trainer/save_folder.h"

namespace tandem {
namespace {

// What decides a job's course beside its model and seed.
std::map<std::string, std::string> OptionsToKeep(const TrainOptions& options) {
  return {{"dataset", options.dataset},
          {"optimizer", options.optimizer},
          {"batch_size", absl::StrCat(options.batch_size)}};
}

Checkpoint CheckpointOf(const Job& job, const TrainPosition& position,
                        WholeState state) {
  Checkpoint checkpoint;
  checkpoint.model = ModelOf(state);
  checkpoint.optimizer = std::move(state.optimizer);
  checkpoint.progress.step = position.step;
  checkpoint.progress.epoch = position.sampler.epoch;
  checkpoint.progress.sampler_position = position.sampler.position;
  checkpoint.progress.seed = job.options.seed;
  checkpoint.progress.world_size = job.launch.world_size;
  checkpoint.progress.model = job.options.model;
  checkpoint.progress.options = OptionsToKeep(job.options);
  return checkpoint;
}

// What must be as it was, for the job to go on with the same bits.
absl::Status CheckSame(const std::string& path, const char* flag,
                       const std::string& then, const std::string& now) {
  if (then == now) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--resume=", path, ": the checkpoint is of a job with --", flag, "=",
      then, ", but this one has --", flag, "=", now, ": give the same"));
}

absl::Status CheckFits(const std::string& path,
                       const TrainingProgress& progress,
                       const TrainOptions& options) {
  TANDEM_RETURN_IF_ERROR(
      CheckSame(path, "model", progress.model, options.model));
  // Its weights alone are wanted.
  if (options.eval_only) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(CheckSame(path, "seed", absl::StrCat(progress.seed),
                                   absl::StrCat(options.seed)));
  for (const auto& [name, now] : OptionsToKeep(options)) {
    const auto then = progress.options.find(name);
    if (then == progress.options.end()) continue;
    TANDEM_RETURN_IF_ERROR(CheckSame(path, name.c_str(), then->second, now));
  }
  return absl::OkStatus();
}

// Every rank reads a file of its own, perhaps in a folder of its own host: the
// newest there need not be the newest here.
absl::Status CompareProgress(const Job& job, const TrainingProgress& progress) {
  const NamedValues mine = {
      {"the step", absl::StrCat(progress.step)},
      {"the epoch", absl::StrCat(progress.epoch)},
      {"the sampler's position", absl::StrCat(progress.sampler_position)},
      {"the seed", absl::StrCat(progress.seed)},
  };
  return Annotate(AgreeInGroup(mine, "checkpoints", *job.world),
                  absl::StrCat("--resume=", job.options.resume));
}

}  // namespace

NamedTensors ModelOf(const WholeState& state) {
  NamedTensors model = state.parameters;
  model.insert(model.end(), state.buffers.begin(), state.buffers.end());
  return model;
}

absl::StatusOr<std::string> SaveJob(const Job& job,
                                    const TrainPosition& position) {
  const std::string& folder = job.options.save_dir;
  const std::string name = CheckpointName(position.step);
  const std::string path = absl::StrCat(folder, "/", name);
  TANDEM_ASSIGN_OR_RETURN(WholeState state, job.strategy->GatherState());
  if (job.launch.rank != 0) return path;
  TANDEM_RETURN_IF_ERROR(
      SaveCheckpoint(path, CheckpointOf(job, position, std::move(state))));
  TANDEM_RETURN_IF_ERROR(PointLatestAt(folder, name));
  return path;
}

absl::StatusOr<TrainPosition> ResumeJob(Job& job, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          LoadCheckpoint(CheckpointFile(path)));
  TANDEM_RETURN_IF_ERROR(CheckFits(path, checkpoint.progress, job.options));
  TANDEM_RETURN_IF_ERROR(CompareProgress(job, checkpoint.progress));
  TANDEM_RETURN_IF_ERROR(job.strategy->LoadModelState(checkpoint.model));
  if (!job.options.eval_only) {
    TANDEM_RETURN_IF_ERROR(
        job.strategy->LoadOptimizerState(checkpoint.optimizer));
  }
  TrainPosition position;
  position.step = checkpoint.progress.step;
  position.sampler.epoch = checkpoint.progress.epoch;
  position.sampler.position = checkpoint.progress.sampler_position;
  return position;
}

}  // namespace tandem
