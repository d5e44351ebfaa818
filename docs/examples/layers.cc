// Layers of one's own: a block that is computed again in backward, and layers
// that ranks share; and how a strategy evaluates:
//   bazel run //docs/examples:layers -- --nproc_per_node=4 --tensor=2
// --tensor=1 is data parallel.
#include <ATen/ops/rand.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <cstdio>
#include <memory>

#include "absl/flags/flag.h"
#include "core/base/status_macros.h"
#include "core/mesh/mesh.h"
#include "core/random/random.h"
#include "core/run/run_program.h"
#include "models/layers/basic_layers.h"
#include "models/layers/module_layer.h"
#include "models/layers/tensor_parallel_linear.h"
#include "models/tensor_parallel_loss.h"
#include "parallel/activation_checkpointing/checkpoint.h"
#include "parallel/mesh_strategy.h"
#include "parallel/schedule/schedules.h"

ABSL_FLAG(int, tensor, 1, "Ranks that share each layer.");

struct Branch : torch::nn::Module {
  explicit Branch(int64_t width)
      : up(register_module("up", torch::nn::Linear(width, 2 * width))),
        down(register_module("down", torch::nn::Linear(2 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) { return down(up(x).relu()); }
  torch::nn::Linear up, down;
};

// The branch's activations are not kept: backward computes them again.
struct Block : torch::nn::Module {
  explicit Block(int64_t width)
      : branch(register_module("branch", std::make_shared<Branch>(width))) {}
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = tandem::Checkpoint(branch, x);
    return x + y;
  }
  std::shared_ptr<Branch> branch;
};

constexpr int64_t kClasses = 4;

tandem::LayerSpecs Layers() {
  tandem::LayerSpecs layers = {tandem::LinearLayer("input", 2, 64)};
  layers.push_back(tandem::ModuleLayer<Block>(
      "block1", "block", [] { return std::make_shared<Block>(64); }));
  const tandem::LayerSpecs mlp = {
      tandem::ColumnParallelLinearLayer("up", 64, 256),
      tandem::ReluLayer("relu"),
      tandem::RowParallelLinearLayer("down", 256, 64)};
  layers.insert(layers.end(), mlp.begin(), mlp.end());
  layers.push_back(tandem::ColumnParallelLinearLayer("head", 64, kClasses));
  return layers;
}

// Points of a square; the classes are its quarters.
tandem::Batch Points(at::Generator draws) {
  tandem::Batch batch;
  batch.size = 32;
  batch.inputs = at::rand({batch.size, 2}, draws) - 0.5;
  const at::Tensor side = batch.inputs.gt(0).to(at::kLong);
  batch.targets = side.select(1, 0) + 2 * side.select(1, 1);
  return batch;
}

absl::Status Train(tandem::Rank& rank) {
  const int tensor = absl::GetFlag(FLAGS_tensor);
  TANDEM_ASSIGN_OR_RETURN(
      const auto mesh, tandem::Mesh::Create(rank.size(), {.tensor = tensor}));
  tandem::MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(
      options.schedule,
      tandem::MakeSchedule("1f1b",
                           {.devices = 1, .chunks = 1, .microbatches = 1}));
  options.tensor = tensor;
  options.sequence_parallel = false;  // Block knows nothing of it
  TANDEM_ASSIGN_OR_RETURN(
      auto strategy,
      tandem::MeshStrategy::Create(
          Layers(), tandem::TensorParallelCrossEntropy({kClasses}), options,
          &rank.world));
  // Ranks of one replica see the same samples.
  const int replica = mesh.ReplicaIndex(rank.rank());
  at::Generator draws = tandem::GeneratorFor(replica, "training");
  for (int step = 1; step <= 300; ++step) {
    TANDEM_ASSIGN_OR_RETURN(const auto score,
                            strategy->TrainStep(Points(draws), 0.1));
    if (rank.rank() != 0 || step % 100 != 1) continue;
    std::printf("step %d: loss %.6f\n", step, score.loss());
  }
  at::Generator test = tandem::GeneratorFor(replica, "test");
  tandem::Score sum;
  for (int i = 0; i < 8; ++i) {
    const tandem::Batch batch = Points(test);
    TANDEM_ASSIGN_OR_RETURN(const tandem::Score score,
                            strategy->Evaluate(batch));  // of this replica
    sum += score;
  }
  TANDEM_ASSIGN_OR_RETURN(sum, strategy->Sum(sum));  // of all, on every rank
  if (rank.rank() == 0) {
    std::printf("test: loss %.6f, accuracy %.3f of %d\n", sum.loss(),
                sum.accuracy(), static_cast<int>(sum.count));
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  return tandem::RunProgram(argc, argv, {"layers", "Trains layers."}, Train);
}
