// DistributedDataParallel around a module: the first demo of PyTorch's tutorial
// "Getting Started with Distributed Data Parallel". Every rank has a copy of
// the model and samples of its own; gradients are averaged, so copies stay
// alike.
//
//   bazel run //tools/examples:ddp_basic -- --nproc_per_node=2

#include <ATen/Context.h>
#include <ATen/ops/mse_loss.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/make_optimizer.h"
#include "tools/examples/example_program.h"

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains a small network on several ranks with DistributedDataParallel.\n\n"
    "  ddp_basic --nproc_per_node=2    on two ranks of this machine\n";

struct ToyModel : torch::nn::Module {
  ToyModel()
      : net1(register_module("net1", torch::nn::Linear(10, 10))),
        net2(register_module("net2", torch::nn::Linear(10, 5))) {}

  at::Tensor forward(const at::Tensor& x) { return net2(net1(x).relu()); }

  torch::nn::Linear net1;
  torch::nn::Linear net2;
};

NamedTensors ModelWeights(const std::shared_ptr<ToyModel>& model) {
  return ModuleTraits<std::shared_ptr<ToyModel>>::Parameters(model);
}

absl::Status Demo(const ExampleRank& rank) {
  const c10::Device device = rank.devices.front();
  const ExampleSamples samples = MakeExampleSamples(rank);

  // Each rank begins with weights of its own.
  at::manual_seed(rank.options.seed + rank.rank());
  auto model = std::make_shared<ToyModel>();
  model->to(device);
  TANDEM_RETURN_IF_ERROR(
      SayEach(rank, absl::StrFormat("on %s made weights  %s", device.str(),
                                    WeightsSha256(ModelWeights(model)))));

  // From here on all have rank 0's.
  TANDEM_ASSIGN_OR_RETURN(auto ddp,
                          MakeDistributedDataParallel(model, rank.world));
  TANDEM_ASSIGN_OR_RETURN(auto optimizer,
                          MakeOptimizer(SgdOptions{}, ddp->flat_buffers()));
  const auto loss_now = [&] {
    const at::NoGradGuard no_grad;
    return at::mse_loss(model->forward(samples.inputs), samples.labels)
        .item<double>();
  };
  ExampleResult result;
  result.loss_before = loss_now();
  TANDEM_ASSIGN_OR_RETURN(result.weights_before,
                          CommonFingerprint(rank, ModelWeights(model)));

  for (int64_t step = 0; step < rank.options.steps; ++step) {
    ddp->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                            ddp->Forward(samples.inputs));
    TANDEM_RETURN_IF_ERROR(
        ddp->Backward(at::mse_loss(outputs, samples.labels)));
    optimizer->Step(rank.options.learning_rate);
  }

  result.loss_after = loss_now();
  result.weights = ModelWeights(model);
  return SayResult(rank, result);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Example example;
  example.name = "ddp_basic";
  example.usage = tandem::kUsage;
  example.run = tandem::Demo;
  return tandem::RunExample(argc, argv, example);
}
