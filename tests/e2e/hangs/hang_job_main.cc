// A job of which one rank hangs the others, for hang_test: it trains for ever,
// in one of several layouts, and in step 3 the culprit does what HANG says.

#include <ATen/Functions.h>
#include <signal.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/instrument/fault_point.h"
#include "core/run/run_program.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/balance/cut.h"
#include "parallel/distributed_data_parallel.h"
#include "parallel/mesh_strategy.h"
#include "parallel/schedule/schedules.h"

ABSL_FLAG(std::string, layout, "ddp", "ddp, pipeline or hybrid.");
ABSL_FLAG(std::string, backend, "shm", "The backend of the ranks' groups.");
ABSL_FLAG(std::string, hang, "", "stop, late, shape, order or group.");
ABSL_FLAG(int, culprit, 0, "Who does that.");
ABSL_FLAG(int, timeout, 8, "Seconds that a rank waits for others.");

namespace tandem {
namespace {

constexpr int kMicrobatches = 4;
constexpr int kRows = 8;

// What the culprit does at the fault point, and says before.
absl::Status Hang(Communicator& world, Communicator& evaluation) {
  const std::string hang = absl::GetFlag(FLAGS_hang);
  std::fprintf(stderr, "hangs: %s\n", hang.c_str());
  if (hang == "stop") raise(SIGSTOP);
  if (hang == "stop") return absl::OkStatus();
  if (hang == "late") {
    std::this_thread::sleep_for(
        std::chrono::seconds(absl::GetFlag(FLAGS_timeout) + 3));
    return absl::OkStatus();
  }
  // Where a backend lets unlike collectives end, the culprit waits behind them.
  if (hang == "shape") world.AllReduceSum(at::zeros({3})).IgnoreError();
  if (hang == "order") world.Barrier().IgnoreError();
  return evaluation.Barrier([] { return "the evaluation"; });
}

// Where: in DDP between two buckets; in pipelines while other ranks wait for
// activations, or after all messages of the step.
std::string FaultPlace(const Rank& rank, int pipe) {
  const std::string hang = absl::GetFlag(FLAGS_hang);
  if (absl::GetFlag(FLAGS_layout) == "ddp") return "bucket:0";
  if (hang == "stop" || hang == "late" || hang == "group") {
    return absl::StrCat("stage:", rank.rank() % pipe, ":forward:1");
  }
  return "before_optimizer";
}

void Arm(const Rank& rank, int pipe, std::function<absl::Status()> hang) {
  if (rank.rank() != absl::GetFlag(FLAGS_culprit)) return;
  Fault fault;
  fault.point = FaultPlace(rank, pipe);
  fault.step = 3;
  fault.action = Fault::Action::kCall;
  fault.call = std::move(hang);
  ArmFaults({fault});
}

// One step of training.
using Step = std::function<absl::Status()>;

absl::StatusOr<Step> DdpSteps(Rank& rank) {
  using torch::nn::Linear;
  torch::nn::Sequential net(Linear(8, 8), Linear(8, 8), Linear(8, 8));
  DistributedDataParallelOptions options;
  options.bucket_cap_mb = 1e-4;
  TANDEM_ASSIGN_OR_RETURN(
      auto made, MakeDistributedDataParallel(net, rank.world, options));
  const auto ddp =
      std::shared_ptr<typename decltype(made)::element_type>(std::move(made));
  return Step([ddp]() -> absl::Status {
    ddp->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                            ddp->Forward(at::rand({kRows, 8})));
    return ddp->Backward(y.square().sum());
  });
}

absl::StatusOr<Step> MeshSteps(Rank& rank, int pipe) {
  const LayerSpecs layers = Mlp({8, 6, 16, 4});
  MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.schedule,
                          MakeSchedule("1f1b", {pipe, 1, kMicrobatches}));
  TANDEM_ASSIGN_OR_RETURN(options.cuts, UniformCuts(layers.size(), pipe));
  options.pipeline.timeout = std::chrono::seconds(absl::GetFlag(FLAGS_timeout));
  TANDEM_ASSIGN_OR_RETURN(
      auto made,
      MeshStrategy::Create(layers, CrossEntropy, options, &rank.world));
  const std::shared_ptr<MeshStrategy> strategy = std::move(made);
  return Step([strategy] {
    const Batch batch = {at::rand({kRows, 8}), at::zeros({kRows}, at::kLong),
                         kRows};
    return strategy->TrainStep(batch, 0.1).status();
  });
}

absl::Status Train(Rank& rank) {
  const std::string layout = absl::GetFlag(FLAGS_layout);
  std::vector<int> all(static_cast<size_t>(rank.size()));
  std::iota(all.begin(), all.end(), 0);
  TANDEM_ASSIGN_OR_RETURN(const auto evaluation,
                          rank.world.Subgroup(all, "evaluation"));
  const int pipe = layout == "hybrid" ? 2 : rank.size();
  TANDEM_ASSIGN_OR_RETURN(const Step step, layout == "ddp"
                                               ? DdpSteps(rank)
                                               : MeshSteps(rank, pipe));
  Arm(rank, pipe, [&] { return Hang(rank.world, *evaluation); });
  for (int i = 1;; ++i) {
    SetFaultContext(rank.rank(), i);
    TANDEM_RETURN_IF_ERROR(step());
    TANDEM_RETURN_IF_ERROR(rank.world.AllReduceSum(
        at::zeros({5}), [] { return "what users count"; }));
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::RunOptions options;
  options.name = "hang_job";
  options.usage = "Hangs.";
  // Flags are read before ranks connect.
  options.check = [&options](const tandem::Launch& /*first*/) {
    options.communication.timeout =
        std::chrono::seconds(absl::GetFlag(FLAGS_timeout));
    options.communication.backend = absl::GetFlag(FLAGS_backend);
    return absl::OkStatus();
  };
  return tandem::RunProgram(argc, argv, options, tandem::Train);
}
