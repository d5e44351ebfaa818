// DistributedDataParallel around a model that lies on two devices: the third
// demo of PyTorch's tutorial "Getting Started with Distributed Data Parallel".
// Rank r owns devices 2r and 2r + 1: net1 is on the first, net2 on the second.
//
//   bazel run //tools/examples:ddp_model_parallel -- --nproc_per_node=2

#include <ATen/ops/mse_loss.h>
#include <c10/core/GradMode.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "models/toy.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/model_parallel.h"
#include "tools/examples/example_program.h"

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains a network that lies on two devices, on several ranks.\n\n"
    "  ddp_model_parallel --nproc_per_node=2    four devices, two of each "
    "rank\n";

// "on sim:0 and sim:1: net1.weight sim:0, ...".
std::string Describe(const ExampleRank& rank, const NamedTensors& parameters) {
  std::string text = absl::StrCat("on ", rank.devices[0].str(), " and ",
                                  rank.devices[1].str(), ":");
  for (const auto& [name, parameter] : parameters) {
    absl::StrAppend(&text, " ", name, " ", parameter.device().str());
  }
  return text;
}

absl::Status Demo(const ExampleRank& rank) {
  LayerList model = MakeLayers(ToyMpModel(), rank.options.seed);
  TANDEM_ASSIGN_OR_RETURN(
      model, SpreadOverDevices(std::move(model), {kToyMpCut}, rank.devices));
  const NamedTensors parameters = NamedParameters(model);
  TANDEM_RETURN_IF_ERROR(SayEach(rank, Describe(rank, parameters)));

  // Outputs come from the second device, and labels must be there too.
  const ExampleSamples samples = MakeExampleSamples(rank);

  // The same as around any model: there are no device_ids to give.
  TANDEM_ASSIGN_OR_RETURN(auto ddp,
                          MakeDistributedDataParallel(model, rank.world));
  TANDEM_ASSIGN_OR_RETURN(auto optimizer,
                          MakeOptimizer(SgdOptions{}, ddp->flat_buffers()));
  const auto loss_now = [&] {
    const at::NoGradGuard no_grad;
    return at::mse_loss(Forward(model, samples.inputs), samples.labels)
        .item<double>();
  };
  ExampleResult result;
  result.loss_before = loss_now();
  TANDEM_ASSIGN_OR_RETURN(result.weights_before,
                          CommonFingerprint(rank, parameters));

  for (int64_t step = 0; step < rank.options.steps; ++step) {
    ddp->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                            ddp->Forward(samples.inputs));
    TANDEM_RETURN_IF_ERROR(
        ddp->Backward(at::mse_loss(outputs, samples.labels)));
    optimizer->Step(rank.options.learning_rate);
  }

  result.loss_after = loss_now();
  result.weights = parameters;
  return SayResult(rank, result);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Example example;
  example.name = "ddp_model_parallel";
  example.usage = tandem::kUsage;
  example.devices_per_rank = 2;
  example.device = "sim";
  example.run = tandem::Demo;
  return tandem::RunExample(argc, argv, example);
}
