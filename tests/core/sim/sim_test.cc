// What a simulated device is to its user: a device that is not the CPU, whose
// results are.

#include "core/sim/sim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/sim/thrown.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class SimTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(EnableSim().ok()); }
};

void ExpectSameBits(const torch::Tensor& sim, const torch::Tensor& cpu) {
  EXPECT_EQ(sim.device().str().substr(0, 4), "sim:");
  EXPECT_TRUE(torch::equal(sim.cpu(), cpu));
}

TEST_F(SimTest, TensorsCarryTheirDevice) {
  const torch::Tensor a = torch::ones({2, 3}, SimDevice(3));
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
  const torch::Tensor a = torch::ones({2, 2}, SimDevice(0));
  const torch::Tensor b = torch::ones({2, 2}, SimDevice(1));
  const std::string error = Thrown([&] { torch::mm(a, b); });
  EXPECT_THAT(error, HasSubstr("Expected all tensors to be on the same device, "
                               "but found at least two devices, sim:0 and "
                               "sim:1! (argument 'mat2' of aten::mm)"));
  EXPECT_THAT(Thrown([&] {
                torch::mm(a, torch::ones({2, 2}));
              }),
              HasSubstr("sim:0 and cpu"));
  EXPECT_EQ((a + torch::tensor(2.0f)).sum().item<float>(), 12);
  ExpectSameBits(a.index({torch::tensor({1, 0})}), torch::ones({2, 2}));
}

TEST_F(SimTest, ThereAreSixteenDevices) {
  EXPECT_THAT(Thrown([] { torch::ones({1}, SimDevice(16)); }),
              HasSubstr("sim:0 to sim:15"));
  torch::ones({1}, SimDevice(15));
}

TEST(SimDeathTest, TheHostCannotReadADevicesMemory) {
  ASSERT_TRUE(EnableSim().ok());
  const torch::Tensor a = torch::ones({4}, SimDevice(0));
  EXPECT_DEATH(
      {
        volatile float value = *a.data_ptr<float>();
        static_cast<void>(value);
      },
      "");
}

TEST_F(SimTest, ViewsAliasAndInPlaceWorks) {
  torch::Tensor a = torch::zeros({4, 4}, SimDevice(0));
  a.select(0, 1).add_(1);
  a.t().slice(0, 2, 3).mul_(3);
  torch::Tensor expected = torch::zeros({4, 4});
  expected.select(0, 1).add_(1);
  expected.t().slice(0, 2, 3).mul_(3);
  ExpectSameBits(a, expected);
  EXPECT_EQ(a.view({16}).storage().unsafeGetStorageImpl(),
            a.storage().unsafeGetStorageImpl());
  torch::Tensor out = torch::empty({0}, SimDevice(0));
  torch::add_out(out, a, a);
  ExpectSameBits(out, expected + expected);
  out.resize_({2, 2});
  out.squeeze_();
  out.t_();
  EXPECT_EQ(out.strides(), torch::IntArrayRef({1, 2}));
}

TEST_F(SimTest, ModulesMoveAndTrainWithTheCpusBits) {
  torch::manual_seed(1);
  torch::nn::Sequential cpu(
      torch::nn::Conv2d(3, 8, 3), torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
      torch::nn::Flatten(), torch::nn::Linear(8 * 36, 10));
  auto sim = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(
      cpu->clone(SimDevice(1)));
  torch::optim::SGD on_cpu(cpu->parameters(), 0.1);
  torch::optim::SGD on_sim(sim->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor x = torch::randn({4, 3, 8, 8});
    for (bool simulated : {false, true}) {
      auto& optimizer = simulated ? on_sim : on_cpu;
      optimizer.zero_grad();
      torch::Tensor y =
          simulated ? sim->forward(x.to(SimDevice(1))) : cpu->forward(x);
      torch::cross_entropy_loss(y, torch::arange(4).to(y.device())).backward();
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
  torch::Tensor x = torch::ones({2}, SimDevice(0)).requires_grad_();
  torch::Tensor y = x;
  for (int device = 0; device < 4; ++device) {
    y = y.to(SimDevice(device)) * 2;
    y.register_hook([&threads](const torch::Tensor& gradient) {
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
  torch::manual_seed(7);
  const torch::Tensor cpu = torch::randn({5});
  ExpectSameBits(torch::randn({5}, SimDevice(0)), cpu);
  ExpectSameBits(torch::randn({5}, SimDevice(1)), cpu);
  EXPECT_FALSE(torch::equal(torch::randn({5}, SimDevice(1)).cpu(), cpu));
  // Dropout draws as on the CPU.
  torch::manual_seed(7);
  const torch::Tensor dropped = torch::dropout(torch::ones({64}), 0.5, true);
  ExpectSameBits(torch::dropout(torch::ones({64}, SimDevice(2)), 0.5, true),
                 dropped);
}

TEST_F(SimTest, SavesAndLoads) {
  const torch::Tensor a = torch::randn({3, 2}, SimDevice(2));
  std::stringstream file;
  torch::save(a, file);
  torch::Tensor b;
  torch::load(b, file);
  EXPECT_TRUE(torch::equal(b.cpu(), a.cpu()));
}

TEST_F(SimTest, PinsMemory) {
  const torch::Tensor a = torch::randn({3});
  EXPECT_FALSE(a.is_pinned());
  EXPECT_TRUE(a.pin_memory().is_pinned());
  EXPECT_TRUE(torch::equal(a.pin_memory(), a));
}

TEST_F(SimTest, RefusesWhatItDoesNotSimulate) {
  const torch::Tensor a = torch::eye(3, SimDevice(0));
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
