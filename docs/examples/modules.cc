// A module of one's own, whose children hand on dicts and tuples, in stages
// and replicas:
//   bazel run //docs/examples:modules -- --nproc_per_node=4 --pipe=2
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "absl/flags/flag.h"
#include "core/base/status_macros.h"
#include "core/mesh/mesh.h"
#include "core/random/random.h"
#include "core/run/run_program.h"
#include "models/modules/batch_of_trees.h"
#include "models/modules/layers_of.h"
#include "parallel/balance/cut.h"
#include "parallel/mesh_strategy.h"
#include "parallel/schedule/schedules.h"

ABSL_FLAG(int, pipe, 2, "Ranks that share one replica of the model.");
ABSL_FLAG(std::string, schedule, "1f1b", "gpipe, 1f1b or zb_h1.");

using at::Tensor;
using Features = std::map<std::string, Tensor>;

// The module is written as it would be for LibTorch alone.
struct Stem : torch::nn::Module {
  Stem() { linear = register_module("linear", torch::nn::Linear(8, 16)); }
  Features forward(const Tensor& x, const Tensor& weights) {
    return {{"x", linear(x * weights).tanh()}, {"weights", weights}};
  }
  torch::nn::Linear linear{nullptr};
};

struct Block : torch::nn::Module {
  Block() { linear = register_module("linear", torch::nn::Linear(16, 16)); }
  Features forward(Features features) {
    features["x"] = features["x"] + linear(features["x"]).tanh();
    return features;
  }
  torch::nn::Linear linear{nullptr};
};

struct Head : torch::nn::Module {
  Head() { linear = register_module("linear", torch::nn::Linear(16, 1)); }
  std::tuple<Tensor, Tensor> forward(const Features& features) {
    return {linear(features.at("x")), features.at("weights")};
  }
  torch::nn::Linear linear{nullptr};
};

struct Net : torch::nn::Module {
  Net() {
    register_module("stem", std::make_shared<Stem>());
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 4; ++i) blocks->push_back(std::make_shared<Block>());
    register_module("head", std::make_shared<Head>());
  }
  torch::nn::ModuleList blocks{nullptr};
};

using Outputs = std::tuple<Tensor, Tensor>;

tandem::LossResult Loss(const Outputs& outputs, const Tensor& sums) {
  const Tensor loss = at::mse_loss(std::get<0>(outputs), sums);
  const int64_t samples = sums.size(0);
  return {loss, {loss.item<double>() * samples, 0, samples}};
}

absl::Status Train(tandem::Rank& rank) {
  const int pipe = absl::GetFlag(FLAGS_pipe);
  TANDEM_ASSIGN_OR_RETURN(const auto mesh,
                          tandem::Mesh::Create(rank.size(), {.pipe = pipe}));
  const c10::IValue example =
      tandem::ToTree(std::make_tuple(at::rand({1, 8}), at::rand({1, 8})));
  TANDEM_ASSIGN_OR_RETURN(
      const auto layers,
      (tandem::LayersOf<Stem, Block, Head>(
          std::make_shared<Net>(), {"stem", "blocks.*", "head"}, example)));
  tandem::MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(
      options.schedule,
      tandem::MakeSchedule(absl::GetFlag(FLAGS_schedule), {pipe, 1, 4}));
  TANDEM_ASSIGN_OR_RETURN(options.cuts,
                          tandem::UniformCuts(layers.specs.size(), pipe));
  const auto loss = tandem::LossOf<Outputs, Tensor>(
      layers.outputs, /*targets=*/tandem::TreeForm(), Loss);
  TANDEM_ASSIGN_OR_RETURN(
      auto strategy,
      tandem::MeshStrategy::Create(layers.specs, loss, options, &rank.world));
  // Ranks of one replica see the same samples.
  at::Generator draws =
      tandem::GeneratorFor(mesh.ReplicaIndex(rank.rank()), "samples");
  for (int step = 1; step <= 600; ++step) {
    const Tensor x = at::rand({32, 8}, draws), weights = at::rand({8}, draws);
    const Tensor each = weights.expand({32, 8}).contiguous();
    TANDEM_ASSIGN_OR_RETURN(
        const auto batch,
        tandem::BatchOfTrees(tandem::ToTree(std::make_tuple(x, each)),
                             (x * each).sum(1, /*keepdim=*/true)));
    TANDEM_ASSIGN_OR_RETURN(const auto score, strategy->TrainStep(batch, 0.05));
    if (rank.rank() != 0 || step % 200 != 1) continue;
    std::printf("step %d: loss %.6f\n", step, score.loss());
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  return tandem::RunProgram(argc, argv, {"modules", "Trains a module."}, Train);
}
