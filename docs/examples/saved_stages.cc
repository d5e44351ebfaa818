// Stages that are saved after each epoch, and from which another run goes on,
// in any layout:
//   bazel run //docs/examples:saved_stages -- --nproc_per_node=2 --pipe=2
//   bazel run //docs/examples:saved_stages -- --pipe=1 --epochs=3
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/files/user_path.h"
#include "core/mesh/mesh.h"
#include "core/run/run_program.h"
#include "datasets/loader.h"
#include "datasets/synthetic.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/balance/cut.h"
#include "parallel/mesh_strategy.h"
#include "parallel/schedule/schedules.h"

ABSL_FLAG(int, epochs, 1, "Epochs in all.");
ABSL_FLAG(int, pipe, 1, "Ranks that share one replica of the model.");
ABSL_FLAG(std::string, save_dir, "stages", "The folder of checkpoints.");

// Each rank writes its part. A save never replaces a folder: each step has one.
absl::Status Save(const std::string& dir, int64_t step, int64_t epochs_done,
                  const tandem::Mesh& mesh, tandem::MeshStrategy& strategy,
                  tandem::Rank& rank) {
  TANDEM_ASSIGN_OR_RETURN(const tandem::StatePart part, strategy.PartToSave());
  tandem::TrainingProgress progress;
  progress.step = step;
  progress.epoch = epochs_done;
  tandem::FolderSave save;
  save.path = dir + "/" + tandem::StepFolderName(step);
  save.rank = rank.rank();
  save.gather = [&rank](const std::string& mine) {
    return rank.world.AllGatherString(mine);
  };
  for (const auto& axis : mesh.axes()) save.mesh[axis.name] = axis.degree;
  save.metadata = tandem::CheckpointMetadata(progress);
  return tandem::SaveFolder(save, part).status();
}

// Each rank reads its part of the newest checkpoint, whatever layout wrote it.
absl::StatusOr<tandem::TrainingProgress> Resume(
    const std::string& dir, tandem::MeshStrategy& strategy) {
  if (tandem::CompleteCheckpoints(dir).empty()) {
    return tandem::TrainingProgress();
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string path, tandem::CheckpointAt(dir));
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint,
                          tandem::OpenCheckpointAt(path));
  TANDEM_RETURN_IF_ERROR(strategy.LoadModelState(checkpoint.model));
  TANDEM_RETURN_IF_ERROR(strategy.LoadOptimizerState(checkpoint.optimizer));
  strategy.ResumeAt(checkpoint.progress.step);
  return checkpoint.progress;
}

absl::Status Train(tandem::Rank& rank) {
  const int pipe = absl::GetFlag(FLAGS_pipe);
  const std::string dir = tandem::UserPath(absl::GetFlag(FLAGS_save_dir));
  TANDEM_ASSIGN_OR_RETURN(const auto mesh,
                          tandem::Mesh::Create(rank.size(), {.pipe = pipe}));
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<const tandem::Dataset> data,
                          tandem::MakeSyntheticImages({{1, 28, 28}}));
  tandem::DistributedSamplerOptions sampling;
  sampling.num_replicas = mesh.replicas();
  sampling.rank = mesh.ReplicaIndex(rank.rank());
  TANDEM_ASSIGN_OR_RETURN(
      std::shared_ptr<tandem::DistributedSampler> sampler,
      tandem::DistributedSampler::Create(data->size(), sampling));
  TANDEM_ASSIGN_OR_RETURN(auto loader,
                          tandem::Loader::Create(data, sampler, {32, true}));
  const auto layers = tandem::Mlp({784, 3, 64, data->classes()});
  tandem::MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(
      options.schedule,
      tandem::MakeSchedule("1f1b",
                           {.devices = pipe, .chunks = 1, .microbatches = 4}));
  TANDEM_ASSIGN_OR_RETURN(options.cuts,
                          tandem::UniformCuts(layers.size(), pipe));
  TANDEM_ASSIGN_OR_RETURN(
      auto strategy, tandem::MeshStrategy::Create(layers, tandem::CrossEntropy,
                                                  options, &rank.world));
  TANDEM_ASSIGN_OR_RETURN(const auto start, Resume(dir, *strategy));
  int64_t step = start.step;
  for (int64_t epoch = start.epoch; epoch < absl::GetFlag(FLAGS_epochs);
       ++epoch) {
    loader->StartEpoch(epoch);
    while (true) {
      TANDEM_ASSIGN_OR_RETURN(const auto batch, loader->Next());
      if (!batch.has_value()) break;
      TANDEM_ASSIGN_OR_RETURN(const auto score,
                              strategy->TrainStep(*batch, 0.05));
      if (++step % 40 != 0 || rank.rank() != 0) continue;
      std::printf("step %ld: loss %.6f\n", static_cast<long>(step),  // NOLINT
                  score.loss());
    }
    TANDEM_RETURN_IF_ERROR(Save(dir, step, epoch + 1, mesh, *strategy, rank));
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  return tandem::RunProgram(
      argc, argv, {"saved_stages", "Trains, saves and resumes stages."}, Train);
}
