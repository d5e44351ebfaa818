// DistributedDataParallel around a model on several devices: rank r owns
// devices 2r and 2r + 1, as in PyTorch's tutorial of DistributedDataParallel
// ("Combining DDP with Model Parallelism": its ToyMpModel).

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/model/layer_list.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "gtest/gtest.h"
#include "models/toy.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/model_parallel.h"
#include "tests/models/rounding.h"

namespace tandem::model_parallel_ddp_test {
namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 5;
constexpr int64_t kBatch = 20;
constexpr uint64_t kSeed = 3;

// The tutorial's model as a user writes it who does without layer lists.
struct ToyMpNet : torch::nn::Module {
  ToyMpNet(c10::Device dev0, c10::Device dev1)
      : net1(register_module("net1", torch::nn::Linear(10, 10))),
        net2(register_module("net2", torch::nn::Linear(10, 5))),
        to_dev1(dev0, dev1) {
    net1->to(dev0);
    net2->to(dev1);
  }
  at::Tensor forward(const at::Tensor& x) {
    return net2(to_dev1.Copy(net1(x.to(to_dev1.source())).relu()));
  }
  torch::nn::Linear net1;
  torch::nn::Linear net2;
  CopyChannel to_dev1;
};

struct Samples {
  at::Tensor inputs;
  at::Tensor labels;
};

Samples GlobalSamples(int step) {
  auto generator = at::detail::createCPUGenerator(10 + step);
  return {at::randn({kBatch, kToyInputs}, generator),
          at::randn({kBatch, kToyOutputs}, generator)};
}

Samples Share(int step, int rank) {
  const Samples all = GlobalSamples(step);
  const int64_t size = kBatch / kRanks;
  return {all.inputs.narrow(0, rank * size, size),
          all.labels.narrow(0, rank * size, size)};
}

at::Tensor Loss(const at::Tensor& outputs, const at::Tensor& labels) {
  return at::mse_loss(outputs, labels.to(outputs.device()));
}

// One process, one device, the whole batch.
NamedTensors TrainAlone(const NamedTensors& initial) {
  const LayerList layers = MakeLayers(ToyModel(), kSeed);
  const NamedTensors parameters = NamedParameters(layers);
  for (size_t i = 0; i < initial.size(); ++i) {
    parameters[i].second.detach().copy_(initial[i].second);
  }
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  auto optimizer = MakeOptimizer(SgdOptions{0.9, 0, 0, false}, buffers);
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    const Samples all = GlobalSamples(step);
    Loss(Forward(layers, all.inputs), all.labels).backward();
    (*optimizer)->Step(0.1);
  }
  return parameters;
}

NamedTensors Copies(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) {
    copies.emplace_back(name, tensor.detach().cpu().clone());
  }
  return copies;
}

template <typename Module>
absl::Status Train(Module module, Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(module, world));
  const NamedTensors parameters = ModuleTraits<Module>::Parameters(module);
  const NamedTensors initial = Copies(parameters);
  TANDEM_ASSIGN_OR_RETURN(
      auto optimizer,
      MakeOptimizer(SgdOptions{0.9, 0, 0, false}, ddp->flat_buffers()));
  for (int step = 0; step < kSteps; ++step) {
    ddp->ZeroGrad();
    const Samples mine = Share(step, world.rank());
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                            ddp->Forward(mine.inputs));
    TANDEM_RETURN_IF_ERROR(ddp->Backward(Loss(outputs, mine.labels)));
    optimizer->Step(0.1);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(WeightsSha256(parameters)));
  EXPECT_EQ(all[world.rank()], all[0]) << "ranks differ";
  // The order of additions differs: some 30 of them a step in either way.
  const NamedTensors expected = TrainAlone(initial);
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor value = parameters[i].second.detach().cpu();
    EXPECT_EQ(parameters[i].first, expected[i].first);
    EXPECT_LE(value.sub(expected[i].second).abs().max().item<float>(),
              RoundingTolerance(at::kFloat, 128, 1));
    EXPECT_GT(value.sub(initial[i].second).abs().max().item<float>(), 0.01);
  }
  return absl::OkStatus();
}

class ModelParallelDdpTest : public DeviceTypesAnd<std::string> {
 protected:
  // Calls `body` with each rank's own pair of devices.
  void OnRanks(const std::function<absl::Status(const std::vector<c10::Device>&,
                                                Communicator&)>& body) {
    CommunicatorOptions options;
    options.backend = value();
    ExpectOk(RunThreadRanks(
        kRanks,
        [&](Communicator& world) {
          return body({TestDevice(0), TestDevice(1)}, world);
        },
        [&] { return WithTestDevice(options, 2); }, options.timeout));
  }
};

TEST_P(ModelParallelDdpTest, ALayerListTrainsAsOneProcessWithTheWholeBatch) {
  OnRanks([](const std::vector<c10::Device>& devices,
             Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(LayerList layers,
                            SpreadOverDevices(MakeLayers(ToyMpModel(), kSeed),
                                              {kToyMpCut}, devices));
    return Train(std::move(layers), world);
  });
}

TEST_P(ModelParallelDdpTest, AModuleTrainsAsOneProcessWithTheWholeBatch) {
  OnRanks([](const std::vector<c10::Device>& devices, Communicator& world) {
    return Train(std::make_shared<ToyMpNet>(devices[0], devices[1]), world);
  });
}

TANDEM_ON_DEVICE_TYPES_AND(ModelParallelDdpTest,
                           testing::Values(std::string("gloo"), TestBackend()));

}  // namespace
}  // namespace tandem::model_parallel_ddp_test
