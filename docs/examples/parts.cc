// Parts of docs/library.md that no other example has: a data set, groups of
// parameters, uneven inputs, SyncBatchNorm, DataParallel and a loss of several
// outputs:
//   bazel run //docs/examples:parts -- --nproc_per_node=2
#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/base/status_macros.h"
#include "core/loss/loss.h"
#include "core/run/run_program.h"
#include "datasets/dataset.h"
#include "models/classification_loss.h"
#include "parallel/data_parallel.h"
#include "parallel/distributed_data_parallel.h"
#include "parallel/join/join.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/sync_batch_norm/sync_batch_norm.h"

// Points of a square; the classes are its quarters.
class Points : public tandem::Dataset {
 public:
  using Dataset::Get;  // the overload for inputs and targets
  int64_t size() const override { return 4096; }
  std::vector<int64_t> input_shape() const override { return {2}; }
  int64_t classes() const override { return 4; }
  absl::StatusOr<tandem::Batch> Get(
      absl::Span<const int64_t> indices,
      const tandem::BatchParts& parts) const override {
    tandem::Batch batch;
    batch.size = static_cast<int64_t>(indices.size());
    const at::Tensor points = Read(indices);
    if (parts.inputs) batch.inputs = points;  // float32; int64 for tokens()
    if (parts.targets) batch.targets = Quarters(points);  // int64 [size]
    return batch;
  }

 private:
  static at::Tensor Read(absl::Span<const int64_t> indices) {
    at::Tensor points = at::empty({static_cast<int64_t>(indices.size()), 2});
    float* out = points.data_ptr<float>();
    for (const int64_t index : indices) {
      *out++ = static_cast<float>(index % 64) / 32 - 1;
      *out++ = static_cast<float>(index / 64) / 32 - 1;
    }
    return points;
  }
  static at::Tensor Quarters(const at::Tensor& points) {
    const at::Tensor side = points.gt(0).to(at::kLong);
    return side.select(1, 0) + 2 * side.select(1, 1);
  }
};

// A batch of 32 points, another one for each `number`.
absl::StatusOr<tandem::Batch> PointsOfStep(int64_t number) {
  std::vector<int64_t> indices(32);
  for (size_t i = 0; i < indices.size(); ++i) {
    indices[i] = (number * 1031 + static_cast<int64_t>(i) * 127) % 4096;
  }
  return Points().Get(indices);
}

// Rank r has 20 r batches more than rank 0.
absl::Status TrainUneven(tandem::Rank& rank) {
  auto net = std::make_shared<torch::nn::LinearImpl>(2, 4);
  tandem::DistributedDataParallelOptions options;
  options.optimizer_group = [](const std::string& name) -> int64_t {
    return absl::EndsWith(name, "bias") || absl::StrContains(name, "norm");
  };
  TANDEM_ASSIGN_OR_RETURN(
      auto ddp, tandem::MakeDistributedDataParallel(net, rank.world, options));
  tandem::AdamWOptions decay, no_decay;
  decay.weight_decay = 0.01;
  no_decay.weight_decay = 0;
  TANDEM_ASSIGN_OR_RETURN(
      auto weights, tandem::MakeOptimizer(decay, ddp->flat_buffers_of(0)));
  TANDEM_ASSIGN_OR_RETURN(
      auto others, tandem::MakeOptimizer(no_decay, ddp->flat_buffers_of(1)));
  at::Tensor loss;
  int64_t step = 0;
  const int64_t steps = 200 + 20 * rank.rank();
  TANDEM_ASSIGN_OR_RETURN(tandem::Join join, tandem::Join::Begin({ddp.get()}));
  while (step < steps) {
    TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
    TANDEM_ASSIGN_OR_RETURN(const tandem::Batch batch,
                            PointsOfStep(rank.size() * step++ + rank.rank()));
    ddp->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor y, ddp->Forward(batch.inputs));
    TANDEM_RETURN_IF_ERROR(ddp->Backward(
        [&] { return loss = at::cross_entropy_loss(y, batch.targets); }));
    weights->Step(/*learning_rate=*/0.03);
    others->Step(/*learning_rate=*/0.03);
  }
  TANDEM_RETURN_IF_ERROR(join.Finish());
  if (rank.rank() == 0) {
    std::printf("uneven inputs: loss %.4f\n", loss.item<double>());
  }
  return absl::OkStatus();
}

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{nullptr};
  tandem::SyncableBatchNorm2d norm{nullptr};  // BatchNorm2d until converted

  Net() {
    conv = register_module(
        "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 3)));
    norm = register_module("norm", tandem::SyncableBatchNorm2d(2));
  }
  at::Tensor forward(const at::Tensor& x) { return norm(conv(x)); }
};

absl::Status TrainSynchronised(tandem::Rank& rank) {
  auto net = std::make_shared<Net>();
  std::vector<int> all_ranks(rank.size());
  std::iota(all_ranks.begin(), all_ranks.end(), 0);
  TANDEM_ASSIGN_OR_RETURN(auto statistics,
                          rank.world.Subgroup(all_ranks, "statistics"));
  TANDEM_ASSIGN_OR_RETURN(const int converted,
                          tandem::ConvertSyncBatchNorm(*net, *statistics));
  TANDEM_ASSIGN_OR_RETURN(auto ddp,
                          tandem::MakeDistributedDataParallel(net, rank.world));
  ddp->ZeroGrad();
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                          ddp->Forward(at::rand({4, 1, 8, 8})));
  TANDEM_RETURN_IF_ERROR(ddp->Backward(y.square().mean()));
  if (rank.rank() == 0) std::printf("SyncBatchNorm: %d layer\n", converted);
  return absl::OkStatus();
}

absl::Status TrainOnDevices(const std::vector<c10::Device>& devices) {
  auto net = std::make_shared<torch::nn::LinearImpl>(2, 4);
  TANDEM_ASSIGN_OR_RETURN(auto dp, tandem::MakeDataParallel(net, {devices}));
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  TANDEM_ASSIGN_OR_RETURN(const tandem::Batch batch, PointsOfStep(0));
  optimizer.zero_grad();
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor output, dp->Forward(batch.inputs));
  at::cross_entropy_loss(output, batch.targets.to(devices[0])).backward();
  optimizer.step();
  return absl::OkStatus();
}

// Cross entropy, and how far the layer "head" is from the targets "boxes".
tandem::LossFunction LossOfTwoOutputs() {
  return tandem::LossFunction(
      {/*outputs=*/{"head"}, /*targets=*/{"boxes"}},
      [](const tandem::LossArguments& given) {
        tandem::LossResult result =
            tandem::CrossEntropy(given.outputs, given.targets);
        result.loss =
            result.loss + at::mse_loss(given.further_outputs.at("head"),
                                       given.further_targets.at("boxes"));
        return result;
      });
}

absl::Status Train(tandem::Rank& rank) {
  at::manual_seed(1);
  TANDEM_RETURN_IF_ERROR(TrainUneven(rank));
  TANDEM_RETURN_IF_ERROR(TrainSynchronised(rank));
  TANDEM_RETURN_IF_ERROR(TrainOnDevices({c10::kCPU}));
  TANDEM_ASSIGN_OR_RETURN(const tandem::Batch batch, PointsOfStep(0));
  const at::Tensor boxes = at::rand({batch.size, 4});
  const tandem::LossResult result = LossOfTwoOutputs()(
      {boxes, {{"head", boxes}}, batch.targets, {{"boxes", boxes}}});
  if (rank.rank() == 0) {
    std::printf("two outputs: loss %.4f\n", result.loss.item<double>());
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  return tandem::RunProgram(argc, argv, {"parts", "Trains in parts."}, Train);
}
