// Mistakes that people make with several devices, made on purpose, on
// asynchronous simulated devices: each is caught, and the message says where.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/model/layer_list.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/layers/basic_layers.h"
#include "parallel/balance/cut.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/pipeline/model_parallel.h"

namespace tandem {
namespace {

using testing::MatchesRegex;

constexpr int kTries = 100;
constexpr int64_t kSize = 257;

// Asynchronous whatever the environment says, which may set the seed.
std::vector<c10::Device> AsyncDevices() {
  SimOptions options = SimOptionsForTests();
  options.async = true;
  if (options.most_delay_us == 0) options.most_delay_us = 300;
  ExpectOk(EnableSim(options));
  return SimDevices(2);
}

class StreamMistakesTest : public testing::Test {
 protected:
  const std::vector<c10::Device> devices_ = AsyncDevices();
};

// Another sequence of values at each try, so that memory which is used anew
// does not happen to hold the right ones.
at::Tensor Values(int seed, c10::Device device) {
  return at::arange(kSize, at::device(device).dtype(at::kFloat)).add(seed);
}

struct Wrong {
  int activations = 0;
  int gradients = 0;
};

// Sends tensors through a channel with this order, which each side computes
// with at once, and counts what comes out wrong.
Wrong CountWrong(const std::vector<c10::Device>& devices,
                 std::shared_ptr<const StreamOrder> order) {
  const CopyChannel channel(devices[0], devices[1], std::move(order));
  Wrong wrong;
  for (int i = 0; i < kTries; ++i) {
    const at::Tensor x = Values(i, devices[0]).requires_grad_();
    const at::Tensor y = channel.Copy(x.mul(2).add(1)).mul(3);
    const at::Tensor weights = Values(1000 + 7 * i, devices[1]).mul(5);
    y.mul(weights).sum().backward();
    const at::Tensor gradient = x.grad().mul(1);
    const at::Tensor expected = Values(i, c10::kCPU).mul(2).add(1).mul(3);
    const at::Tensor expected_gradient =
        Values(1000 + 7 * i, c10::kCPU).mul(5).mul(3).mul(2);
    wrong.activations += !y.detach().cpu().equal(expected);
    wrong.gradients += !gradient.cpu().equal(expected_gradient);
  }
  return wrong;
}

struct WithoutFollowingTheProducer : StreamOrder {
  void FollowProducer(const c10::Stream&, const c10::Stream&) const override {}
};

struct WithoutFollowingTheCopy : StreamOrder {
  void FollowCopy(const c10::Stream&, const c10::Event&) const override {}
};

TEST_F(StreamMistakesTest, TheRightOrderNeverGivesAWrongValue) {
  const Wrong wrong = CountWrong(devices_, std::make_shared<StreamOrder>());
  EXPECT_EQ(wrong.activations, 0);
  EXPECT_EQ(wrong.gradients, 0);
}

TEST_F(StreamMistakesTest, ACopyThatDoesNotWaitForItsInputShowsInValues) {
  const Wrong wrong =
      CountWrong(devices_, std::make_shared<WithoutFollowingTheProducer>());
  EXPECT_GT(wrong.activations, 0);
  EXPECT_GT(wrong.gradients, 0);
}

TEST_F(StreamMistakesTest, AUserThatDoesNotWaitForTheCopyShowsInValues) {
  const Wrong wrong =
      CountWrong(devices_, std::make_shared<WithoutFollowingTheCopy>());
  EXPECT_GT(wrong.activations, 0);
  EXPECT_GT(wrong.gradients, 0);
}

// The tutorial's model without its `.to(dev1)`.
struct Forgetful : torch::nn::Module {
  Forgetful(c10::Device dev0, c10::Device dev1)
      : net1(register_module("net1", torch::nn::Linear(10, 10))),
        net2(register_module("net2", torch::nn::Linear(10, 5))) {
    net1->to(dev0);
    net2->to(dev1);
  }
  at::Tensor forward(const at::Tensor& x) { return net2(net1(x).relu()); }
  torch::nn::Linear net1;
  torch::nn::Linear net2;
};

TEST_F(StreamMistakesTest, AForgottenToIsNamedWithDevicesAndArgument) {
  Forgetful model(devices_[0], devices_[1]);
  const absl::Status status = CatchTorch([&] {
    model.forward(at::ones({20, 10}, devices_[0]));
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              MatchesRegex(".*Expected all tensors to be on the same device, "
                           "but found at least two devices, sim:[01] and "
                           "sim:[01]! \\(argument '[a-z0-9]+' of "
                           "aten::addmm\\).*"));
}

Layer Linear(const std::string& name, int64_t in, int64_t out) {
  return LinearLayer(name, in, out).make(3);
}

TEST_F(StreamMistakesTest, AForgottenToInALayerIsNamedWithTheLayer) {
  const at::Tensor scale = at::ones({10}, devices_[0]);  // and not registered
  const LayerList layers = *SpreadOverDevices(
      {Linear("net1", 10, 10),
       {"scale", nullptr, [&](const at::Tensor& x) { return x.mul(scale); }}},
      {1}, devices_);
  const absl::Status status = CatchTorch([&] {
    Forward(layers, at::ones({20, 10}));
  });
  EXPECT_THAT(status,
              InvalidArgument("sim:1 and sim:0", "of aten::mul",
                              "in layer scale (part 2 of 2, on sim:1)"));
}

// 256 KiB of parameters each.
LayerList TwoStages() {
  return {Linear("net1", 256, 256), Linear("net2", 256, 256)};
}

TEST_F(StreamMistakesTest, AStageWhoseParametersDoNotFitIsNamed) {
  const SimMemoryCap cap(devices_[1], 100 << 10);
  const absl::Status status =
      SpreadOverDevices(TwoStages(), {1}, devices_).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               "sim:1 is out of memory: 256 KiB asked for",
                               "of 100 KiB in use",
                               "moving layer net2 (part 2 of 2, on sim:1)"));
}

// And with room for them it trains.
TEST_F(StreamMistakesTest, AStageWhoseActivationsDoNotFitIsNamed) {
  const LayerList layers = *SpreadOverDevices(TwoStages(), {1}, devices_);
  const auto step = [&] {
    const MemoryCategoryScope scope(MemoryCategory::kActivations);
    Forward(layers, at::ones({512, 256})).sum().backward();
  };
  // Also when shapes are known, and operators are queued.
  for (int i = 0; i < 2; ++i) {
    {
      const SimMemoryCap cap(devices_[1], 900 << 10);
      const absl::Status status = CatchTorch(step);
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                   "sim:1 is out of memory: 512 KiB asked for",
                                   "of 900 KiB in use", "activations 512 KiB",
                                   "parameters 257 KiB",
                                   "largest holders: 512 KiB activations of ",
                                   "in layer net2 (part 2 of 2, on sim:1)"));
    }
    for (const auto& [name, parameter] : NamedParameters(layers)) {
      parameter.mutable_grad().reset();
    }
    ExpectOk(CatchTorch(step));
    EXPECT_EQ(layers[0].module->parameters()[0].grad().device(), devices_[0]);
    for (const auto& [name, parameter] : NamedParameters(layers)) {
      parameter.mutable_grad().reset();
    }
  }
}

}  // namespace
}  // namespace tandem
