// What a simulated device is to its user: a device that is not the CPU, whose
// results are.

#include "core/sim/sim.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <atomic>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/testing/thrown.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class SimTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(EnableSim().ok()); }
};

void ExpectSameBits(const at::Tensor& sim, const at::Tensor& cpu) {
  EXPECT_EQ(sim.device().str().substr(0, 4), "sim:");
  EXPECT_TRUE(at::equal(sim.cpu(), cpu));
}

TEST_F(SimTest, TensorsCarryTheirDevice) {
  const at::Tensor a = at::ones({2, 3}, SimDevice(3));
  EXPECT_EQ(a.device().str(), "sim:3");
  EXPECT_EQ(a.cpu().sum().item<float>(), 6);
  EXPECT_EQ(a.to(SimDevice(1)).device(), SimDevice(1));
  EXPECT_EQ((a + a).device(), SimDevice(3));
  EXPECT_EQ(a.sum().item<float>(), 6);
  std::ostringstream text;
  text << a;
  EXPECT_THAT(text.str(), HasSubstr("simFloatType{2,3}"));
}

TEST_F(SimTest, MixingDevicesIsAnError) {
  const at::Tensor a = at::ones({2, 2}, SimDevice(0));
  const at::Tensor b = at::ones({2, 2}, SimDevice(1));
  const std::string error = Thrown([&] { at::mm(a, b); });
  EXPECT_THAT(error, HasSubstr("Expected all tensors to be on the same device, "
                               "but found at least two devices, sim:0 and "
                               "sim:1! (argument 'mat2' of aten::mm)"));
  EXPECT_THAT(Thrown([&] {
                at::mm(a, at::ones({2, 2}));
              }),
              HasSubstr("sim:0 and cpu"));
  EXPECT_EQ((a + at::scalar_tensor(2.0f)).sum().item<float>(), 12);
  ExpectSameBits(a.index({at::tensor({1, 0}, at::kLong)}), at::ones({2, 2}));
}

TEST_F(SimTest, ThereAreSixteenDevices) {
  EXPECT_THAT(Thrown([] { at::ones({1}, SimDevice(16)); }),
              HasSubstr("sim:0 to sim:15"));
  at::ones({1}, SimDevice(15));
}

TEST(SimDeathTest, TheHostCannotReadADevicesMemory) {
  ASSERT_TRUE(EnableSim().ok());
  const at::Tensor a = at::ones({4}, SimDevice(0));
  EXPECT_DEATH(
      {
        volatile float value = *a.data_ptr<float>();
        static_cast<void>(value);
      },
      "");
}

TEST_F(SimTest, ViewsAliasAndInPlaceWorks) {
  at::Tensor a = at::zeros({4, 4}, SimDevice(0));
  a.select(0, 1).add_(1);
  a.t().slice(0, 2, 3).mul_(3);
  at::Tensor expected = at::zeros({4, 4});
  expected.select(0, 1).add_(1);
  expected.t().slice(0, 2, 3).mul_(3);
  ExpectSameBits(a, expected);
  EXPECT_EQ(a.view({16}).storage().unsafeGetStorageImpl(),
            a.storage().unsafeGetStorageImpl());
  at::Tensor out = at::empty({0}, SimDevice(0));
  at::add_out(out, a, a);
  ExpectSameBits(out, expected + expected);
  out.resize_({2, 2});
  out.squeeze_();
  out.t_();
  EXPECT_EQ(out.strides(), at::IntArrayRef({1, 2}));
}

TEST_F(SimTest, ModulesMoveAndTrainWithTheCpusBits) {
  at::manual_seed(1);
  torch::nn::Sequential cpu(
      torch::nn::Conv2d(3, 8, 3), torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
      torch::nn::Flatten(), torch::nn::Linear(8 * 36, 10));
  auto sim = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(
      cpu->clone(SimDevice(1)));
  torch::optim::SGD on_cpu(cpu->parameters(), 0.1);
  torch::optim::SGD on_sim(sim->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = at::randn({4, 3, 8, 8});
    for (bool simulated : {false, true}) {
      auto& optimizer = simulated ? on_sim : on_cpu;
      optimizer.zero_grad();
      at::Tensor y =
          simulated ? sim->forward(x.to(SimDevice(1))) : cpu->forward(x);
      at::cross_entropy_loss(y, at::arange(4).to(y.device())).backward();
      optimizer.step();
    }
  }
  for (size_t i = 0; i < cpu->parameters().size(); ++i) {
    ExpectSameBits(sim->parameters()[i].detach(),
                   cpu->parameters()[i].detach());
    ExpectSameBits(sim->parameters()[i].grad(), cpu->parameters()[i].grad());
  }
}

TEST_F(SimTest, AutogradHasAThreadForEachDevice) {
  std::set<std::thread::id> threads;
  at::Tensor x = at::ones({2}, SimDevice(0)).requires_grad_();
  at::Tensor y = x;
  for (int device = 0; device < 4; ++device) {
    y = y.to(SimDevice(device)) * 2;
    y.register_hook([&threads](const at::Tensor& gradient) {
      threads.insert(std::this_thread::get_id());
      return gradient;
    });
  }
  y.sum().backward();
  EXPECT_EQ(threads.size(), 4u);
  EXPECT_EQ(x.grad().device(), SimDevice(0));
  EXPECT_EQ(x.grad().sum().item<float>(), 32);
}

TEST_F(SimTest, EachDeviceHasItsRandomNumbers) {
  at::manual_seed(7);
  const at::Tensor cpu = at::randn({5});
  ExpectSameBits(at::randn({5}, SimDevice(0)), cpu);
  ExpectSameBits(at::randn({5}, SimDevice(1)), cpu);
  EXPECT_FALSE(at::equal(at::randn({5}, SimDevice(1)).cpu(), cpu));
  // Dropout draws as on the CPU.
  at::manual_seed(7);
  const at::Tensor dropped = at::dropout(at::ones({64}), 0.5, true);
  ExpectSameBits(at::dropout(at::ones({64}, SimDevice(2)), 0.5, true), dropped);
}

// Its operators run the CPU's, which draw from the CPU's generator.
TEST_F(SimTest, ARecurrentNetworksDropoutLeavesOtherThreadsNumbersAlone) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 3).num_layers(2).dropout(0.5));
  lstm->to(SimDevice(0));
  const at::Tensor x = at::ones({5, 2, 4}, SimDevice(0));
  at::manual_seed(7);
  std::atomic<bool> over = false;
  std::vector<float> drawn;
  std::thread loader([&] {
    do {
      drawn.push_back(at::rand({}).item<float>());
    } while (!over);
  });
  for (int i = 0; i < 100; ++i) lstm->forward(x);
  over = true;
  loader.join();
  at::manual_seed(7);
  for (const float each : drawn) {
    ASSERT_EQ(at::rand({}).item<float>(), each);
  }
}

TEST_F(SimTest, SavesAndLoads) {
  const at::Tensor a = at::randn({3, 2}, SimDevice(2));
  std::stringstream file;
  torch::save(a, file);
  at::Tensor b;
  torch::load(b, file);
  EXPECT_TRUE(at::equal(b.cpu(), a.cpu()));
}

TEST_F(SimTest, PinsMemory) {
  const at::Tensor a = at::randn({3});
  EXPECT_FALSE(a.is_pinned());
  EXPECT_TRUE(a.pin_memory().is_pinned());
  EXPECT_TRUE(at::equal(a.pin_memory(), a));
}

TEST_F(SimTest, RefusesWhatItDoesNotSimulate) {
  const at::Tensor a = at::eye(3, SimDevice(0));
  EXPECT_THAT(Thrown([&] { a.to_sparse(); }), HasSubstr("dense tensors alone"));
}

TEST_F(SimTest, IsMadeOnce) {
  EXPECT_TRUE(EnableSim().ok());
  SimOptions other;
  other.devices = 2;
  EXPECT_EQ(EnableSim(other).code(), absl::StatusCode::kFailedPrecondition);
  other.devices = 17;
  EXPECT_EQ(EnableSim(other).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
