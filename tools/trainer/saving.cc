#include "tools/trainer/saving.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/checkpoint.h"
#include "core/status_macros.h"

namespace tandem {
namespace {

constexpr char kLatest[] = "latest.safetensors";

Checkpoint CheckpointOf(const Job& job, const TrainPosition& position) {
  Checkpoint checkpoint;
  checkpoint.model = job.strategy->Parameters();
  const NamedTensors buffers = job.strategy->Buffers();
  checkpoint.model.insert(checkpoint.model.end(), buffers.begin(),
                          buffers.end());
  checkpoint.optimizer = job.strategy->OptimizerState();
  checkpoint.progress.step = position.step;
  checkpoint.progress.epoch = position.sampler.epoch;
  checkpoint.progress.sampler_position = position.sampler.position;
  checkpoint.progress.seed = job.options.seed;
  checkpoint.progress.world_size = job.launch.world_size;
  checkpoint.progress.model = job.options.model;
  checkpoint.progress.options = {{"dataset", job.options.dataset},
                                 {"optimizer", job.options.optimizer}};
  return checkpoint;
}

absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "--save_dir=", folder, ": cannot make the folder: ", error.message()));
}

// Points FOLDER/latest.safetensors at `name`, in one step: a reader sees the
// old link or the new one.
absl::Status PointLatestAt(const std::string& folder, const std::string& name) {
  const std::string latest = absl::StrCat(folder, "/", kLatest);
  const std::string beside = absl::StrCat(latest, ".", getpid());
  unlink(beside.c_str());
  if (symlink(name.c_str(), beside.c_str()) == 0 &&
      rename(beside.c_str(), latest.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  unlink(beside.c_str());
  return absl::UnavailableError(absl::StrCat(latest, ": cannot point at ", name,
                                             ": ", std::strerror(error)));
}

std::string FileOf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  return absl::StrCat(path, "/", kLatest);
}

// What must be as it was for the checkpoint to mean anything.
absl::Status CheckSame(const char* what, const std::string& flag,
                       const std::string& then, const std::string& now) {
  if (then == now) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--resume=", what, ": the checkpoint is of --", flag, "=",
                   then, ", but this job has --", flag, "=", now));
}

absl::Status CheckFits(const std::string& path, const Checkpoint& checkpoint,
                       const TrainOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckSame(path.c_str(), "model",
                                   checkpoint.progress.model, options.model));
  // Its weights alone are wanted.
  if (options.eval_only) return absl::OkStatus();
  const auto optimizer = checkpoint.progress.options.find("optimizer");
  if (optimizer == checkpoint.progress.options.end()) return absl::OkStatus();
  return CheckSame(path.c_str(), "optimizer", optimizer->second,
                   options.optimizer);
}

}  // namespace

absl::StatusOr<std::string> SaveJob(const Job& job,
                                    const TrainPosition& position) {
  const std::string& folder = job.options.save_dir;
  const std::string name =
      absl::StrFormat("step-%09d.safetensors", position.step);
  const std::string path = absl::StrCat(folder, "/", name);
  if (job.launch.rank != 0) return path;
  TANDEM_RETURN_IF_ERROR(MakeFolder(folder));
  TANDEM_RETURN_IF_ERROR(SaveCheckpoint(path, CheckpointOf(job, position)));
  TANDEM_RETURN_IF_ERROR(PointLatestAt(folder, name));
  return path;
}

absl::StatusOr<TrainPosition> ResumeJob(Job& job, const std::string& path) {
  const std::string file = FileOf(path);
  TANDEM_ASSIGN_OR_RETURN(const Checkpoint checkpoint, LoadCheckpoint(file));
  TANDEM_RETURN_IF_ERROR(CheckFits(path, checkpoint, job.options));
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
