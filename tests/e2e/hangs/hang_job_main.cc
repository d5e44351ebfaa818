// A job of which one rank hangs the others, for hang_test: it trains for ever,
// in one of several layouts, and in step 3 the culprit does what HANG says.

#include <ATen/Functions.h>
#include <signal.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/partitioned_collectives.h"
#include "core/instrument/fault_point.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/run/run_program.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "models/tensor_parallel_loss.h"
#include "models/transformer/gpt.h"
#include "parallel/balance/cut.h"
#include "parallel/distributed_data_parallel.h"
#include "parallel/mesh_strategy.h"
#include "parallel/schedule/schedules.h"

ABSL_FLAG(std::string, layout, "ddp",
          "ddp, pipeline, hybrid, tensor, tensor_pipe or sharded.");
ABSL_FLAG(std::string, backend, "shm", "The backend of the ranks' groups.");
ABSL_FLAG(std::string, hang, "", "stop, late, shape, order or group.");
ABSL_FLAG(int, culprit, 0, "Who does that.");
ABSL_FLAG(int, timeout, 8, "Seconds that a rank waits for others.");

namespace tandem {
namespace {

constexpr int kMicrobatches = 4;
constexpr int kRows = 8;
constexpr int kTokens = 4;    // of a sample of a transformer
constexpr int kClasses = 10;  // its tokens

// With whom this rank's layers are divided; null: with nobody.
using Division = std::shared_ptr<const TensorParallel>;

// A collective of the group that others are about to use, which is not theirs:
// of another shape, or another one.
absl::Status StartOther(Communicator& world, const Division& division,
                        bool same_operation) {
  if (division != nullptr) {
    AxisGroup& group = *division->group;
    return CatchTorch([&] {
      same_operation
          ? group.AllReduceSum(at::zeros({3}), "")
          : group.AllGather(at::zeros({group.degree(), 3}), at::zeros({3}),
                            "activations of another layer");
    });
  }
  if (!same_operation) return world.Barrier();
  if (absl::GetFlag(FLAGS_layout) != "sharded") {
    return world.AllReduceSum(at::zeros({3}));
  }
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective started,
      StartReduceScatterSum(world, at::zeros({3 * world.size()}),
                            at::zeros({3})));
  return started.Wait();
}

// What the culprit does at the fault point, and says before.
absl::Status Hang(Communicator& world, Communicator& evaluation,
                  const Division& division) {
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
  if (hang == "shape" || hang == "order") {
    StartOther(world, division, hang == "shape").IgnoreError();
  }
  return evaluation.Barrier([] { return "the evaluation"; });
}

// Where: in DDP between two buckets; in pipelines while other ranks wait for
// activations, or after all messages of the step; with layers that ranks share
// before the first activation; where they share parameters between two
// microbatches, and before gradients go to others.
std::string FaultPlace(const Rank& rank, int pipe, bool divides) {
  const std::string hang = absl::GetFlag(FLAGS_hang);
  const std::string layout = absl::GetFlag(FLAGS_layout);
  if (layout == "ddp") return "bucket:0";
  if (divides) return "tensor_parallel";
  if (hang == "stop" || hang == "late" || hang == "group") {
    return absl::StrCat("stage:", rank.rank() % pipe, ":forward:1");
  }
  return layout == "sharded" ? "after_forward" : "before_optimizer";
}

void Arm(const Rank& rank, const std::string& place,
         std::function<absl::Status()> hang) {
  if (rank.rank() != absl::GetFlag(FLAGS_culprit)) return;
  Fault fault;
  fault.point = place;
  fault.step = 3;
  fault.action = Fault::Action::kCall;
  // A step may come to a place several times.
  fault.call = [hang = std::move(hang),
                has_come = std::make_shared<std::atomic<bool>>(false)] {
    return has_come->exchange(true) ? absl::OkStatus() : hang();
  };
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

// Its layers note with whom they are divided when they are made.
absl::StatusOr<LayerSpecs> Transformer(Division& division) {
  GptOptions options;
  options.layers = 2;
  options.width = 16;
  options.heads = 2;
  options.context = kTokens;
  options.vocabulary = kClasses;
  TANDEM_ASSIGN_OR_RETURN(LayerSpecs layers, Gpt(options));
  for (LayerSpec& each : layers) {
    each.make = [&division, make = std::move(each.make)](uint64_t seed) {
      division = TensorParallelScope::Current();
      return make(seed);
    };
  }
  return layers;
}

// `division` is that of the layers, once they are made.
absl::StatusOr<Step> MeshSteps(Rank& rank, int pipe, int tensor,
                               Division& division) {
  LayerSpecs layers = Mlp({8, 6, 16, 4});
  LossFunction loss = CrossEntropy;
  Batch batch = {at::rand({kRows, 8}), at::zeros({kRows}, at::kLong), kRows};
  if (tensor > 1) {
    TANDEM_ASSIGN_OR_RETURN(layers, Transformer(division));
    TensorParallelLossOptions divided;
    divided.classes = kClasses;
    loss = TensorParallelCrossEntropy(divided);
    batch.inputs = batch.targets = at::zeros({kRows, kTokens}, at::kLong);
  }
  MeshStrategyOptions options;
  options.tensor = tensor;
  options.sequence_parallel = false;
  options.shard_min_num_params = 1;
  if (absl::GetFlag(FLAGS_layout) == "sharded") {
    options.shard = Sharding::kParameters;
  }
  TANDEM_ASSIGN_OR_RETURN(options.schedule,
                          MakeSchedule("1f1b", {pipe, 1, kMicrobatches}));
  TANDEM_ASSIGN_OR_RETURN(options.cuts, UniformCuts(layers.size(), pipe));
  options.pipeline.timeout = std::chrono::seconds(absl::GetFlag(FLAGS_timeout));
  TANDEM_ASSIGN_OR_RETURN(
      auto made, MeshStrategy::Create(layers, loss, options, &rank.world));
  const std::shared_ptr<MeshStrategy> strategy = std::move(made);
  return Step(
      [strategy, batch] { return strategy->TrainStep(batch, 0.1).status(); });
}

absl::Status Train(Rank& rank) {
  const std::string layout = absl::GetFlag(FLAGS_layout);
  std::vector<int> all(static_cast<size_t>(rank.size()));
  std::iota(all.begin(), all.end(), 0);
  TANDEM_ASSIGN_OR_RETURN(const auto evaluation,
                          rank.world.Subgroup(all, "evaluation"));
  const int tensor = layout == "tensor" || layout == "tensor_pipe" ? 2 : 1;
  const int pipe = layout == "pipeline"                            ? rank.size()
                   : layout == "hybrid" || layout == "tensor_pipe" ? 2
                                                                   : 1;
  Division division;
  TANDEM_ASSIGN_OR_RETURN(const Step step,
                          layout == "ddp"
                              ? DdpSteps(rank)
                              : MeshSteps(rank, pipe, tensor, division));
  Arm(rank, FaultPlace(rank, pipe, tensor > 1),
      [&] { return Hang(rank.world, *evaluation, division); });
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
