// Distributed data parallel over a data set: each rank's samples by a sampler,
// and a checkpoint after each epoch, from which a second run goes on:
//   bazel run //docs/examples:epochs -- --checkpoint=a.safetensors
#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/safetensors.h"
#include "core/files/user_path.h"
#include "core/run/run_program.h"
#include "datasets/loader.h"
#include "datasets/synthetic.h"
#include "parallel/ddp/model_state.h"
#include "parallel/distributed_data_parallel.h"
#include "parallel/optim/make_optimizer.h"

ABSL_FLAG(int, epochs, 2, "Epochs in all.");
ABSL_FLAG(std::string, checkpoint, "",
          "Written after each epoch; where it is there, training goes on.");

using Model = torch::nn::Sequential;

// Called by one rank: all hold the same values.
absl::Status Save(const std::string& path, int64_t epochs_done,
                  const Model& model, const tandem::Optimizer& optimizer) {
  TANDEM_ASSIGN_OR_RETURN(
      const auto tensors,
      tandem::CheckpointTensors(tandem::ModuleTraits<Model>::Parameters(model),
                                optimizer.State()));
  tandem::TrainingProgress progress;
  progress.epoch = epochs_done;
  return tandem::WriteSafetensors(path, tensors,
                                  tandem::CheckpointMetadata(progress));
}

// Called by every rank. Returns how many epochs are done.
absl::StatusOr<int64_t> Load(const std::string& path, const Model& model,
                             tandem::Optimizer& optimizer) {
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, tandem::OpenCheckpoint(path));
  TANDEM_RETURN_IF_ERROR(tandem::CopyModelState(
      checkpoint.model, tandem::ModuleTraits<Model>::Parameters(model)));
  TANDEM_RETURN_IF_ERROR(optimizer.LoadState(checkpoint.optimizer));
  return checkpoint.progress.epoch;
}

absl::Status Train(tandem::Rank& rank) {
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<const tandem::Dataset> data,
                          tandem::MakeSyntheticImages({{784}}));
  tandem::DistributedSamplerOptions sampling;
  sampling.num_replicas = rank.size();
  sampling.rank = rank.rank();
  TANDEM_ASSIGN_OR_RETURN(
      std::shared_ptr<tandem::DistributedSampler> sampler,
      tandem::DistributedSampler::Create(data->size(), sampling));
  TANDEM_ASSIGN_OR_RETURN(
      auto loader,
      tandem::Loader::Create(data, sampler, {32, /*drop_last=*/true}));

  at::manual_seed(1);  // weights: rank 0's count
  Model model(torch::nn::Linear(784, 64), torch::nn::ReLU(),
              torch::nn::Linear(64, data->classes()));
  TANDEM_ASSIGN_OR_RETURN(
      auto ddp, tandem::MakeDistributedDataParallel(model, rank.world));
  TANDEM_ASSIGN_OR_RETURN(
      auto optimizer,
      tandem::MakeOptimizer(tandem::SgdOptions{0.9}, ddp->flat_buffers()));

  int64_t epoch = 0;
  const std::string path = tandem::UserPath(absl::GetFlag(FLAGS_checkpoint));
  if (access(path.c_str(), F_OK) == 0) {
    TANDEM_ASSIGN_OR_RETURN(epoch, Load(path, model, *optimizer));
  }
  for (; epoch < absl::GetFlag(FLAGS_epochs); ++epoch) {
    loader->StartEpoch(epoch);
    double loss_sum = 0;
    for (;;) {
      TANDEM_ASSIGN_OR_RETURN(const auto batch, loader->Next());
      if (!batch.has_value()) break;
      ddp->ZeroGrad();
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                              ddp->Forward(batch->inputs));
      at::Tensor loss;
      TANDEM_RETURN_IF_ERROR(ddp->Backward([&] {
        return loss = at::cross_entropy_loss(output, batch->targets);
      }));
      optimizer->Step(/*learning_rate=*/0.02);
      loss_sum += loss.item<double>();
    }
    if (rank.rank() != 0) continue;
    std::printf("epoch %d: loss %.6f\n", static_cast<int>(epoch),
                loss_sum / loader->num_batches());
    if (path.empty()) continue;
    TANDEM_RETURN_IF_ERROR(Save(path, epoch + 1, model, *optimizer));
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  return tandem::RunProgram(argc, argv, {"epochs", "Trains by epochs."}, Train);
}
