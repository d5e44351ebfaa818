// What goes into Forward and what comes out of it.

#include <ATen/ops/full.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "parallel/ddp/model_state.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::forward_test {
namespace {

class DdpForward : public DdpTest {};

// Nobody says that backward must follow.
TEST_P(DdpForward, OutputMayBeIgnored) {
  for (bool find_unused : {false, true}) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      DistributedDataParallelOptions options;
      options.find_unused_parameters = find_unused;
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, options));
      for (int step = 0; step < 4; ++step) {
        TANDEM_RETURN_IF_ERROR(
            twins.ddp->Forward(ExampleInput(step, world), true, !find_unused)
                .status());
      }
      for (int step = 0; step < 4; ++step) {
        TANDEM_RETURN_IF_ERROR(
            BackwardBoth(twins, ExampleInput(step, world), true, !find_unused));
        TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(DdpForward, SeveralForwardsBeforeOneBackward) {
  DistributedDataParallelOptions find_unused;
  find_unused.find_unused_parameters = true;
  DistributedDataParallelOptions static_graph;
  static_graph.static_graph = true;
  for (const auto& options :
       {DistributedDataParallelOptions(), find_unused, static_graph}) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, options));
      for (int step = 0; step < 3; ++step) {
        const at::Tensor x = ExampleInput(step, world);
        const at::Tensor y = ExampleInput(step + 10, world);
        TANDEM_ASSIGN_OR_RETURN(auto first, twins.ddp->Forward(x, true, true));
        TANDEM_ASSIGN_OR_RETURN(auto second, twins.ddp->Forward(y, true, true));
        TANDEM_RETURN_IF_ERROR(
            twins.ddp->Backward(first.sum().add(second.sum())));
        twins.alone->forward(x, true, true)
            .sum()
            .add(twins.alone->forward(y, true, true).sum())
            .backward();
        TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
      }
      return absl::OkStatus();
    });
  }
}

struct Outputs : torch::nn::Module {
  Outputs() : both(register_module("both", std::make_shared<TwoLinear>())) {}
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x) {
    return {both->forward(x, true, false), {both->forward(x, false, true), x}};
  }
  std::shared_ptr<TwoLinear> both;
};

// Outputs in a structure; one has no gradient; one goes unused at times.
TEST_P(DdpForward, NestedOutputsOfWhichSomeGoUnused) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.find_unused_parameters = true;
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Outputs>(world, options));
    const auto loss = [](const auto& outputs, bool use_first) {
      const at::Tensor second = std::get<1>(outputs)[0].sum();
      return use_first ? std::get<0>(outputs).sum().mul(second) : second;
    };
    for (int step = 0; step < 6; ++step) {
      const at::Tensor x = ExampleInput(step, world);
      TANDEM_ASSIGN_OR_RETURN(const auto outputs, twins.ddp->Forward(x));
      EXPECT_FALSE(std::get<1>(outputs)[1].requires_grad());
      const bool use_first = step == 1 || step == 2;
      TANDEM_RETURN_IF_ERROR(twins.ddp->Backward(loss(outputs, use_first)));
      loss(twins.alone->forward(x), use_first).backward();
      TANDEM_RETURN_IF_ERROR(ExpectMeanGradients(twins, world));
      if (step == 3) ZeroBoth(twins);
    }
    return absl::OkStatus();
  });
}

// A tensor goes in by another name than it came out: state across steps.
struct State {
  at::Tensor x;
  at::Tensor carried;
};
struct Recurrent : torch::nn::Module {
  Recurrent() : fc(register_module("fc", torch::nn::Linear(4, 4))) {}
  std::pair<at::Tensor, at::Tensor> forward(const State& state) {
    at::Tensor carried = state.carried;
    if (!carried.defined()) {
      carried = at::full({2, 4}, 0.5, TestDevice());
    }
    return {fc(state.x), carried};
  }
  torch::nn::Linear fc;
};

TEST_P(DdpForward, InputsOfAnyTypeAndTensorsMadeInForward) {
  for (bool static_graph : {false, true}) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      DistributedDataParallelOptions options;
      options.static_graph = static_graph;
      options.broadcast_buffers = false;
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Recurrent>(world, options));
      at::Tensor carried;
      for (int step = 0; step < 3; ++step) {
        const State state{ExampleInput(step, world), carried};
        TANDEM_ASSIGN_OR_RETURN(const auto outputs, twins.ddp->Forward(state));
        carried = outputs.second;
        EXPECT_FALSE(carried.requires_grad());
        TANDEM_RETURN_IF_ERROR(twins.ddp->Backward(outputs.first.sum()));
        twins.alone->forward(state).first.sum().backward();
        TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
      }
      return absl::OkStatus();
    });
  }
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpForward);

class ModelStateTest : public DeviceTypeTest {};

at::Tensor Full(double value, c10::Device device, at::ScalarType dtype) {
  return at::full({3}, value, at::TensorOptions().dtype(dtype).device(device));
}

// The text "sim:10" comes before "sim:9": a rank that owns both must send and
// receive in the order of the others all the same.
TEST_P(ModelStateTest, BroadcastGoesByPlaceNotByTheDevicesName) {
  const std::vector<c10::Device> devices = Devices(12);
  const std::vector<std::pair<int, int>> owned = {{0, 1}, {9, 10}, {11, 8}};
  CommunicatorOptions options;
  options.backend = TestBackend();
  options.timeout = std::chrono::seconds(30);
  const auto with_devices = [&] {
    CommunicatorOptions mine = WithTestDevice(options, 2);
    if (mine.device.has_value()) {
      const auto [first, second] = owned[ThisThreadsRank()];
      mine.device = devices[first];
      mine.further_devices = {devices[second]};
    }
    return mine;
  };
  ExpectOk(RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        const auto [first, second] = owned[world.rank()];
        const double base = 100. * world.rank();
        std::vector<at::Tensor> tensors;
        for (const auto& [place, dtype] :
             std::vector<std::pair<int, at::ScalarType>>{{first, at::kFloat},
                                                         {second, at::kFloat},
                                                         {second, at::kLong},
                                                         {first, at::kFloat},
                                                         {first, at::kLong}}) {
          tensors.push_back(Full(base + static_cast<double>(tensors.size()),
                                 devices[place], dtype));
        }
        TANDEM_RETURN_IF_ERROR(BroadcastFrom(0, tensors, world));
        for (size_t i = 0; i < tensors.size(); ++i) {
          EXPECT_TRUE(tensors[i].cpu().equal(
              Full(static_cast<double>(i), at::kCPU, tensors[i].scalar_type())))
              << "tensor " << i << " of rank " << world.rank() << ": "
              << tensors[i].cpu();
        }
        return absl::OkStatus();
      },
      with_devices, options.timeout));
}

TEST_P(ModelStateTest, ADifferenceIsNamedWithItsRankAndTensor) {
  ExpectOk(RunDeviceRanks(3, [&](Communicator& world) -> absl::Status {
    const NamedTensors model = {
        {"a", Full(1, TestDevice(), at::kFloat)},
        {"b",
         Full(1, TestDevice(), world.rank() == 2 ? at::kDouble : at::kFloat)}};
    const absl::Status compared = CheckSameModel(model, world);
    EXPECT_EQ(compared.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(compared.message().find(
                  "the model of rank 2 differs from that of rank 0: tensor "
                  "1 is b: Double [3]"),
              absl::string_view::npos)
        << compared;
    return absl::OkStatus();
  }));
}

TEST_P(ModelStateTest, AFloatOfAnotherPrecisionIsConverted) {
  const NamedTensors model = {{"a", Full(0, TestDevice(), at::kBFloat16)},
                              {"b", Full(0, TestDevice(), at::kFloat)},
                              {"n", Full(0, TestDevice(), at::kLong)}};
  NamedTensors state = {{"a", Full(1.25, at::kCPU, at::kFloat)},
                        {"b", Full(2.5, at::kCPU, at::kBFloat16)},
                        {"n", Full(3, at::kCPU, at::kLong)}};
  ASSERT_TRUE(CopyModelState(state, model).ok());
  EXPECT_EQ(model[0].second.scalar_type(), at::kBFloat16);
  EXPECT_EQ(model[0].second.cpu()[2].item<double>(), 1.25);
  EXPECT_EQ(model[1].second.cpu()[2].item<double>(), 2.5);

  state[2].second = Full(3, at::kCPU, at::kFloat);
  const absl::Status refused = CopyModelState(state, model);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("n: expected Long [3], got Float [3]"),
            absl::string_view::npos)
      << refused;
}

TANDEM_ON_DEVICE_TYPES(ModelStateTest);

}  // namespace
}  // namespace tandem::forward_test
