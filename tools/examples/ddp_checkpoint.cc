// A checkpoint of a model under DistributedDataParallel: the second demo of
// PyTorch's tutorial "Getting Started with Distributed Data Parallel". All
// ranks have the same weights, so rank 0 alone saves; then every rank loads.
//
//   bazel run //tools/examples:ddp_checkpoint -- --nproc_per_node=2

#include <ATen/ops/mse_loss.h>
#include <c10/core/GradMode.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/safetensors.h"
#include "core/files/user_path.h"
#include "core/model/layer_list.h"
#include "models/toy.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/model_state.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/model_parallel.h"
#include "tools/examples/example_program.h"

ABSL_FLAG(std::string, file, "ddp_checkpoint.safetensors",
          "Where rank 0 saves the weights. It must not be there yet, every "
          "rank must reach it, and it is removed at the end.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains, saves from one rank, loads on all, and goes on.\n\n"
    "  ddp_checkpoint --nproc_per_node=2    on two ranks of this machine\n";

using Ddp = DistributedDataParallel<LayerList>;

absl::StatusOr<std::unique_ptr<Ddp>> MakeModel(const ExampleRank& rank,
                                               uint64_t seed) {
  TANDEM_ASSIGN_OR_RETURN(
      LayerList model,
      SpreadOverDevices(MakeLayers(ToyModel(), seed), {}, rank.devices));
  return MakeDistributedDataParallel(std::move(model), rank.world);
}

double MeanLoss(Ddp& ddp, const ExampleSamples& samples) {
  const at::NoGradGuard no_grad;
  return at::mse_loss(Forward(ddp.module(), samples.inputs), samples.labels)
      .item<double>();
}

absl::Status Train(const ExampleRank& rank, Ddp& ddp,
                   const ExampleSamples& samples) {
  TANDEM_ASSIGN_OR_RETURN(auto optimizer,
                          MakeOptimizer(SgdOptions{}, ddp.flat_buffers()));
  for (int64_t step = 0; step < rank.options.steps; ++step) {
    ddp.ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                            ddp.Forward(samples.inputs));
    TANDEM_RETURN_IF_ERROR(ddp.Backward(at::mse_loss(outputs, samples.labels)));
    optimizer->Step(rank.options.learning_rate);
  }
  return absl::OkStatus();
}

absl::Status Save(const std::string& path, const NamedTensors& weights) {
  if (access(path.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("--file=", path,
                     " is there already, and would be lost; remove it, or "
                     "give another"));
  }
  return WriteSafetensors(path, weights);
}

// What was read lies on the CPU and is copied to wherever this rank's weights
// are, so a file does not depend on who saved it (PyTorch: map_location).
absl::Status Load(const std::string& path, const NamedTensors& weights) {
  TANDEM_ASSIGN_OR_RETURN(const auto file, SafetensorsReader::Open(path));
  TANDEM_ASSIGN_OR_RETURN(const NamedTensors saved, file->ReadAll());
  return CopyModelState(saved, weights);
}

absl::Status Demo(const ExampleRank& rank) {
  const std::string path = UserPath(absl::GetFlag(FLAGS_file));
  const ExampleSamples samples = MakeExampleSamples(rank);

  // Something to save.
  TANDEM_ASSIGN_OR_RETURN(const auto first, MakeModel(rank, rank.options.seed));
  TANDEM_RETURN_IF_ERROR(Train(rank, *first, samples));
  const NamedTensors trained = NamedParameters(first->module());
  TANDEM_ASSIGN_OR_RETURN(const std::string saved,
                          CommonFingerprint(rank, trained));
  if (rank.rank() == 0) TANDEM_RETURN_IF_ERROR(Save(path, trained));
  absl::Cleanup remove = [&] {
    if (rank.rank() == 0) unlink(path.c_str());
  };
  Say(rank, absl::StrCat("weights saved   ", saved, "  in ",
                         absl::GetFlag(FLAGS_file)));

  // Nobody reads before the file is whole. A model with other weights takes
  // those of the file.
  TANDEM_RETURN_IF_ERROR(rank.world.Barrier());
  TANDEM_ASSIGN_OR_RETURN(const auto second,
                          MakeModel(rank, rank.options.seed + 1));
  ExampleResult result;
  result.weights = NamedParameters(second->module());
  TANDEM_RETURN_IF_ERROR(Load(path, result.weights));
  TANDEM_RETURN_IF_ERROR(
      SayEach(rank, absl::StrCat("on ", rank.devices.front().str(), " loaded ",
                                 WeightsSha256(result.weights))));
  TANDEM_ASSIGN_OR_RETURN(result.weights_before,
                          CommonFingerprint(rank, result.weights));
  result.loss_before = MeanLoss(*second, samples);

  // Training goes on from there. Its all-reduces have heard of every rank, and
  // so every rank has loaded: the file may go.
  TANDEM_RETURN_IF_ERROR(Train(rank, *second, samples));
  std::move(remove).Invoke();
  result.loss_after = MeanLoss(*second, samples);
  return SayResult(rank, result);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Example example;
  example.name = "ddp_checkpoint";
  example.usage = tandem::kUsage;
  example.run = tandem::Demo;
  return tandem::RunExample(argc, argv, example);
}
