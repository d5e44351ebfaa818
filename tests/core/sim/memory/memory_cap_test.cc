// A simulated device with less memory than it is asked for.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "tests/core/sim/memory/memory_fixture.h"

namespace tandem::memory_cap_test {
namespace {

using testing::HasSubstr;
using Category = MemoryCategory;

class MemoryCapTest : public MemoryFixture {};

TEST_F(MemoryCapTest, HoldsExactly) {
  const SimMemoryCap cap(SimDevice(0), 1000);
  const at::Tensor a = at::empty({200}, On(0));
  const at::Tensor b = at::empty({50}, On(0));
  EXPECT_EQ(Used(), 1000);
  EXPECT_NE(OutOfMemory([] { at::empty({1}, On(0, at::kByte)); }), "");
  EXPECT_EQ(OutOfMemory([] { at::empty({0}, On(0)); }), "");
  EXPECT_EQ(OutOfMemory([] { at::empty({5000}, On(1)); }), "")
      << "another device's is its own";
}

TEST_F(MemoryCapTest, ThrowsBeforeItAllocates) {
  const SimMemoryCap cap(SimDevice(0), 1000);
  sim::ResetPeak(0);
  // The host has not so much either.
  const int64_t huge = int64_t{1} << 45;
  EXPECT_THAT(OutOfMemory([&] { at::empty({huge}, On(0)); }),
              HasSubstr("128 TiB asked for"));
  EXPECT_NE(OutOfMemory([] { at::empty({251}, On(0)); }), "");
  EXPECT_EQ(Used(), 0);
  EXPECT_EQ(Peak(), 0);
}

TEST_F(MemoryCapTest, HoldsForWhateverAsks) {
  at::Tensor a = at::ones({100}, On(0));
  const at::Tensor on_one = at::ones({100}, On(1));
  const at::Tensor x = at::ones({50}, On(0)).requires_grad_();
  const at::Tensor y = (x * 2).sum();
  const int64_t before = Used();
  {
    const SimMemoryCap cap(SimDevice(0), before + 100);
    EXPECT_NE(OutOfMemory([&] { a + a; }), "") << "operator";
    EXPECT_NE(OutOfMemory([&] { a.resize_({200}); }), "") << "resize_";
    EXPECT_NE(OutOfMemory([&] { on_one.to(SimDevice(0)); }), "")
        << "sim to sim";
    EXPECT_NE(OutOfMemory([] { at::ones({99}).to(SimDevice(0)); }), "")
        << "CPU to sim";
    EXPECT_NE(OutOfMemory([&] { a.clone(); }), "") << "clone";
    EXPECT_NE(OutOfMemory([&] { y.backward({}, /*retain_graph=*/true); }), "")
        << "backward";
    EXPECT_FALSE(x.grad().defined());
    EXPECT_EQ(Used(), before);
  }
  // And all of it works once there is room.
  a.resize_({200});
  EXPECT_EQ((a.slice(0, 0, 100) + on_one.to(SimDevice(0))).sum().item<float>(),
            200);
  y.backward();
  EXPECT_EQ(x.grad().sum().item<float>(), 100);
}

TEST_F(MemoryCapTest, BelowWhatIsInUseIsForTheNextOne) {
  at::Tensor a = at::ones({100}, On(0));
  const SimMemoryCap cap(SimDevice(0), 100);
  EXPECT_THAT(OutOfMemory([&] { at::zeros_like(a); }),
              HasSubstr("400 B asked for, 400 B of 100 B in use"));
  a.zero_();  // needs none
}

TEST_F(MemoryCapTest, TheMessageNamesEverything) {
  at::Tensor weight;
  {
    const MemoryCategoryScope scope(Category::kParameters);
    weight = at::ones({1024}, On(1));
  }
  std::vector<at::Tensor> activations;
  {
    const MemoryCategoryScope scope(Category::kActivations);
    activations.push_back(weight.slice(0, 0, 512) * 2);
    activations.push_back(weight.slice(0, 512) * 3);
    activations.push_back(weight.slice(0, 0, 256).exp());
  }
  const SimMemoryCap cap(SimDevice(1), 10 * 1024);
  EXPECT_EQ(OutOfMemory([&] { weight.sin(); }),
            "sim:1 is out of memory: 4 KiB asked for, 9 KiB of 10 KiB in use "
            "(activations 5 KiB, parameters 4 KiB); largest holders: 4 KiB "
            "parameters of aten::empty (1 block), 4 KiB activations of "
            "aten::mul.Tensor (2 blocks), 1 KiB activations of aten::exp "
            "(1 block)");
}

TEST_F(MemoryCapTest, TheMessageNamesFiveHolders) {
  std::vector<at::Tensor> all = {at::ones({10}, On(0))};
  all.push_back(all[0].sin());
  all.push_back(all[0].cos());
  all.push_back(all[0].exp());
  all.push_back(all[0].neg());
  all.push_back(all[0].sqrt());
  all.push_back(all[0].tanh());
  const SimMemoryCap cap(SimDevice(0), 300);
  const std::string message = OutOfMemory([&] { all[0].abs(); });
  const std::string holders = message.substr(message.find("largest holders"));
  EXPECT_EQ(std::count(holders.begin(), holders.end(), ','), 4) << message;
}

// One step of a small network.
void TrainStep(torch::nn::Linear& layer, torch::optim::SGD& optimizer) {
  optimizer.zero_grad();
  layer->forward(at::ones({64, 32}, On(0))).square().sum().backward();
  optimizer.step();
}

TEST_F(MemoryCapTest, TrainingGoesOnWhenItIsLifted) {
  at::manual_seed(3);
  torch::nn::Linear layer(32, 16);
  torch::nn::Linear on_cpu =
      std::dynamic_pointer_cast<torch::nn::LinearImpl>(layer->clone());
  layer->to(SimDevice(0));
  torch::optim::SGD optimizer(layer->parameters(), 0.001);
  TrainStep(layer, optimizer);
  sim::ResetPeak(0);
  TrainStep(layer, optimizer);
  const int64_t peak = Peak();
  {
    const SimMemoryCap cap(SimDevice(0), peak - 1);
    EXPECT_THAT(OutOfMemory([&] { TrainStep(layer, optimizer); }),
                HasSubstr("sim:0 is out of memory"));
  }
  {
    const SimMemoryCap cap(SimDevice(0), peak);
    TrainStep(layer, optimizer);
  }
  torch::optim::SGD reference(on_cpu->parameters(), 0.001);
  for (int step = 0; step < 3; ++step) {
    reference.zero_grad();
    on_cpu->forward(at::ones({64, 32})).square().sum().backward();
    reference.step();
  }
  EXPECT_TRUE(at::equal(layer->weight.cpu(), on_cpu->weight));
}

}  // namespace
}  // namespace tandem::memory_cap_test
