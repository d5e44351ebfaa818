// Operators in asynchronous mode: they come back at once, and have the CPU's
// values when somebody waits.

#include "core/sim/calls/queued_call.h"

#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/core/sim/asynchronous.h"
#include "tests/core/sim/thrown.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class QueuedCallTest : public testing::Test {
 protected:
  void SetUp() override { EnableAsynchronousSim(); }
  void TearDown() override { sim::SynchroniseAll(); }
};

torch::TensorOptions On(int device, torch::Dtype dtype = torch::kFloat) {
  return torch::TensorOptions().dtype(dtype).device(SimDevice(device));
}

c10::Stream Default(int device) { return sim::DefaultStream(device); }

void ExpectSameBits(const torch::Tensor& sim, const torch::Tensor& cpu) {
  EXPECT_EQ(sim.device().type(), c10::DeviceType::PrivateUse1);
  EXPECT_TRUE(torch::equal(sim.cpu(), cpu)) << sim.sizes();
}

TEST_F(QueuedCallTest, CallsComeBackBeforeTheyRun) {
  const torch::Tensor a = torch::ones({16, 16}, On(0));
  torch::mm(a, a);  // the first call finds out the shape
  sim::SynchroniseAll();
  torch::Tensor b;
  {
    const HeldStream held(Default(0));
    b = torch::mm(a, a);
    EXPECT_EQ(b.sizes(), torch::IntArrayRef({16, 16}));
    EXPECT_EQ(b.device(), SimDevice(0));
    EXPECT_FALSE(sim::IsIdle(Default(0)));
  }
  ExpectSameBits(b, torch::full({16, 16}, 16.0f));
}

TEST_F(QueuedCallTest, ALongChainHasTheCpusBits) {
  torch::manual_seed(5);
  const torch::Tensor start = torch::randn({32, 32});
  torch::Tensor cpu = start;
  torch::Tensor sim = start.to(SimDevice(0));
  for (int i = 0; i < 100; ++i) {
    cpu = torch::softmax(torch::mm(cpu, start) + cpu.t(), 1) - 0.01 * i;
    sim = torch::softmax(torch::mm(sim, start.to(SimDevice(0))) + sim.t(), 1) -
          0.01 * i;
  }
  ExpectSameBits(sim, cpu);
}

// As a step's learning rate does.
TEST_F(QueuedCallTest, OtherRealNumbersAreNoOtherCall) {
  torch::Tensor a = torch::ones({16}, On(0));
  const torch::Tensor b = torch::ones({16}, On(0));
  a.addcdiv_(b, b, 0.5).lerp_(b, 0.25).clamp_(0.5, 2.5);
  torch::Tensor c = torch::pow(a, 2.5);
  a.fill_(1.0);
  sim::SynchroniseAll();
  {
    const HeldStream held(Default(0));
    a.addcdiv_(b, b, 0.75).lerp_(b, 0.5).clamp_(0.0, 1.25);
    c = torch::pow(a, 3.0);
    a.fill_(7.0);
  }
  ExpectSameBits(c, torch::full({16}, 1.25f * 1.25f * 1.25f));
  ExpectSameBits(a, torch::full({16}, 7.0f));
}

TEST_F(QueuedCallTest, NumbersThatDecideOnShapesOrDtypesAre) {
  for (const double end : {1.5, 2.5, 1.5, 0.5}) {
    ExpectSameBits(torch::arange(0, end, 0.5, On(0)),
                   torch::arange(0, end, 0.5));
  }
  const torch::Tensor whole = torch::full({4}, 3, On(0, torch::kLong));
  ExpectSameBits(torch::pow(whole, 2), torch::full({4}, 9, torch::kLong));
  ExpectSameBits(torch::pow(whole, 2.0), torch::full({4}, 9.0f));
  ExpectSameBits(torch::pow(whole, 3), torch::full({4}, 27, torch::kLong));
  for (const int dimension : {0, 1}) {
    ExpectSameBits(torch::ones({2, 3}, On(0)).sum(dimension),
                   torch::ones({2, 3}).sum(dimension));
  }
}

TEST_F(QueuedCallTest, AnIndexErrorComesAtTheSynchronisation) {
  const torch::Tensor table = torch::arange(10, On(0));
  const torch::Tensor good = torch::tensor({1, 2, 3}).to(SimDevice(0));
  const torch::Tensor bad = torch::tensor({1, 99, 3}).to(SimDevice(0));
  ExpectSameBits(table.index_select(0, good), torch::tensor({1.f, 2.f, 3.f}));
  torch::Tensor result;
  EXPECT_EQ(Thrown([&] { result = table.index_select(0, bad); }), "");
  EXPECT_EQ(result.sizes(), torch::IntArrayRef({3}));
  EXPECT_THAT(Thrown([] { Default(0).synchronize(); }),
              HasSubstr("index out of range"));
  // Once; the device goes on.
  EXPECT_EQ(Thrown([] { Default(0).synchronize(); }), "");
  ExpectSameBits(table.index_select(0, good), torch::tensor({1.f, 2.f, 3.f}));
}

TEST_F(QueuedCallTest, AnErrorComesWithTheFirstValueThatIsLookedAt) {
  const torch::Tensor table = torch::arange(10, On(0));
  const torch::Tensor good = torch::tensor({1}).to(SimDevice(0));
  const torch::Tensor bad = torch::tensor({-50}).to(SimDevice(0));
  table.index_select(0, good);
  table.index_select(0, bad);
  EXPECT_THAT(Thrown([&] { table.sum().item<float>(); }),
              HasSubstr("index out of range"));
  EXPECT_EQ(table.sum().item<float>(), 45);
}

TEST_F(QueuedCallTest, WrongShapesAreAnErrorAtOnce) {
  const torch::Tensor a = torch::ones({2, 3}, On(0));
  EXPECT_THAT(Thrown([&] { torch::mm(a, a); }), HasSubstr("cannot be multip"));
  EXPECT_THAT(Thrown([&] {
                a + torch::ones({2, 3}, On(1));
              }),
              HasSubstr("sim:0 and sim:1"));
}

TEST_F(QueuedCallTest, WhatDependsOnValuesWaitsForThem) {
  for (int i = 0; i < 20; ++i) {
    torch::Tensor a = torch::zeros({100}, On(0));
    a.slice(0, 10, 20 + i).fill_(1);
    EXPECT_EQ(a.nonzero().size(0), 10 + i);
    EXPECT_EQ(a.masked_select(a > 0).numel(), 10 + i);
    EXPECT_EQ(a.index({a == 1}).numel(), 10 + i);
    EXPECT_EQ(std::get<0>(torch::_unique2(a)).numel(), 2);
    EXPECT_EQ(a.sum().item<float>(), 10 + i);
    EXPECT_TRUE(torch::equal(a, a.clone()));
    EXPECT_TRUE(a.any().item<bool>());
    const torch::Tensor counts = torch::full({3}, 2 + i, On(0, torch::kLong));
    EXPECT_EQ(torch::repeat_interleave(a.slice(0, 0, 3), counts).numel(),
              3 * (2 + i));
  }
}

TEST_F(QueuedCallTest, ViewsNeedNoQueue) {
  torch::Tensor a = torch::zeros({4, 6}, On(0));
  torch::Tensor cpu = torch::zeros({4, 6});
  a.fill_(1);
  sim::SynchroniseAll();
  {
    const HeldStream held(Default(0));
    const torch::Tensor view = a.t().slice(0, 1, 3);
    EXPECT_EQ(view.sizes(), torch::IntArrayRef({2, 4}));
    EXPECT_TRUE(view.is_alias_of(a));
  }
  for (torch::Tensor* each : {&a, &cpu}) {
    each->fill_(1);
    each->t().slice(0, 1, 3).mul_(2);
    each->select(0, 2).add_(each->select(0, 1));
    each->view({24}).slice(0, 5, 7).zero_();
  }
  ExpectSameBits(a, cpu);
  ExpectSameBits(a.t().slice(0, 1, 3), cpu.t().slice(0, 1, 3));
}

TEST_F(QueuedCallTest, InPlaceAndOutKeepTheOrder) {
  torch::Tensor a = torch::ones({32}, On(0));
  torch::Tensor out = torch::empty({32}, On(0));
  torch::Tensor grows = torch::empty({0}, On(0));
  const void* memory = out.data_ptr();
  torch::Tensor cpu = torch::ones({32});
  for (int i = 0; i < 50; ++i) {
    a.add_(1).mul_(0.5);
    torch::add_out(out, a, a);
    a.copy_(out).sub_(0.25);
    cpu.add_(1).mul_(0.5);
    cpu.copy_(cpu + cpu).sub_(0.25);
  }
  ExpectSameBits(a, cpu);
  EXPECT_EQ(out.data_ptr(), memory);
  for (int i = 0; i < 3; ++i) {
    grows.resize_({0});
    torch::add_out(grows, a, a);
    ExpectSameBits(grows, cpu + cpu);
  }
}

TEST_F(QueuedCallTest, ResizingWaits) {
  torch::Tensor a = torch::ones({8}, On(0));
  a.add_(1);
  a.add_(1);
  a.resize_({2000});
  ExpectSameBits(a.slice(0, 0, 8), torch::full({8}, 3.0f));
}

TEST_F(QueuedCallTest, RandomNumbersComeInTheOrderOfTheCalls) {
  for (int i = 0; i < 10; ++i) {
    torch::manual_seed(i);
    std::vector<torch::Tensor> sim;
    for (int n = 0; n < 5; ++n) {
      sim.push_back(torch::randn({64}, On(0)));
      sim.push_back(torch::dropout(torch::ones({64}, On(0)), 0.5, true));
      sim.push_back(torch::randperm(64, On(0, torch::kLong)));
    }
    torch::manual_seed(i);
    for (int n = 0; n < 5; ++n) {
      ExpectSameBits(sim[3 * n], torch::randn({64}));
      ExpectSameBits(sim[3 * n + 1],
                     torch::dropout(torch::ones({64}), 0.5, true));
      ExpectSameBits(sim[3 * n + 2], torch::randperm(64));
    }
  }
}

// What was called before has its numbers from before.
TEST_F(QueuedCallTest, SeedingAndStatesWaitForTheCallsBefore) {
  torch::Tensor drawn = torch::empty({64}, On(0));
  torch::manual_seed(3);
  drawn.normal_();
  torch::manual_seed(3);
  const torch::Tensor first = torch::randn({64});
  const torch::Tensor second = torch::randn({64});
  for (int i = 0; i < 20; ++i) {
    torch::manual_seed(3);
    drawn.normal_();
    torch::manual_seed(4);
    ExpectSameBits(drawn, first);

    torch::manual_seed(3);
    drawn.normal_();
    at::Generator generator =
        at::globalContext().defaultGenerator(SimDevice(0));
    const torch::Tensor state = generator.get_state();
    drawn.normal_();
    generator.set_state(state);
    ExpectSameBits(drawn, second);
    drawn.normal_();
    ExpectSameBits(drawn, second);
  }
}

TEST_F(QueuedCallTest, MemoryInUseOutlivesItsTensor) {
  torch::Tensor a = torch::ones({1000}, On(0));
  torch::Tensor b = a + a;
  sim::SynchroniseAll();
  {
    const HeldStream held(Default(0));
    b = a + a;
    a = torch::Tensor();
  }
  ExpectSameBits(b, torch::full({1000}, 2.0f));
}

// -- Copies ------------------------------------------------------------------

TEST_F(QueuedCallTest, ACopyToTheHostWaits) {
  torch::Tensor a = torch::zeros({100}, On(0));
  for (int i = 0; i < 50; ++i) {
    a.add_(1);
    EXPECT_EQ(a.cpu()[99].item<float>(), i + 1);
    torch::Tensor host = torch::zeros({100});
    host.copy_(a, /*non_blocking=*/true);  // not pinned
    EXPECT_EQ(host[99].item<float>(), i + 1);
  }
}

TEST_F(QueuedCallTest, APinnedCopyToTheHostDoesNotWait) {
  torch::Tensor host = torch::zeros({100}).pin_memory();
  torch::Tensor a = torch::full({100}, 3.0f, On(0));
  sim::SynchroniseAll();
  {
    const HeldStream held(Default(0));
    host.copy_(a, /*non_blocking=*/true);
    EXPECT_EQ(host[0].item<float>(), 0) << "too early";
  }
  Default(0).synchronize();
  EXPECT_EQ(host[0].item<float>(), 3);
  host.zero_();
  host.copy_(a);  // blocking
  EXPECT_EQ(host[0].item<float>(), 3);
}

TEST_F(QueuedCallTest, APinnedCopyToTheDeviceReadsWhenItRuns) {
  torch::Tensor host = torch::full({100}, 1.0f).pin_memory();
  torch::Tensor a = torch::zeros({100}, On(0));
  sim::SynchroniseAll();
  {
    const HeldStream held(Default(0));
    a.copy_(host, /*non_blocking=*/true);
    host.fill_(2);  // too early: the device has not read it
  }
  ExpectSameBits(a, torch::full({100}, 2.0f));
  a.copy_(host, /*non_blocking=*/true);
  Default(0).synchronize();
  host.fill_(7);
  ExpectSameBits(a, torch::full({100}, 2.0f));
}

TEST_F(QueuedCallTest, AnOrdinaryCopyToTheDeviceHasRead) {
  for (const bool non_blocking : {false, true}) {
    torch::Tensor host = torch::full({100}, 1.0f);
    const torch::Tensor a = host.to(SimDevice(0), non_blocking);
    host.fill_(2);
    ExpectSameBits(a, torch::full({100}, 1.0f));
  }
}

void WarmUpAdd(int device) {
  torch::Tensor a = torch::ones({100}, On(device));
  a.add_(1);
  sim::SynchroniseAll();
}

TEST_F(QueuedCallTest, ACopyBetweenDevicesWaitsForItsSource) {
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    WarmUpAdd(from);
    torch::Tensor a = torch::ones({100}, On(from));
    torch::Tensor b = torch::zeros({100}, On(to));
    sim::SynchroniseAll();
    {
      const HeldStream held(Default(from));
      a.add_(1);
      b.copy_(a, /*non_blocking=*/true);
      a.add_(1);  // after the copy has read
      EXPECT_FALSE(sim::IsIdle(Default(to))) << "what follows there waits too";
    }
    ExpectSameBits(b, torch::full({100}, 2.0f));
    ExpectSameBits(a, torch::full({100}, 3.0f));
  }
}

TEST_F(QueuedCallTest, ACopyBetweenDevicesWaitsForItsTarget) {
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    WarmUpAdd(to);
    torch::Tensor a = torch::full({100}, 9.0f, On(from));
    torch::Tensor b = torch::ones({100}, On(to));
    torch::Tensor before = torch::zeros({100}, On(to));
    sim::SynchroniseAll();
    {
      const HeldStream held(Default(to));
      before.copy_(b);  // reads what the copy replaces
      b.copy_(a);
      b.add_(1);
    }
    ExpectSameBits(before, torch::full({100}, 1.0f));
    ExpectSameBits(b, torch::full({100}, 10.0f));
  }
}

TEST_F(QueuedCallTest, TensorsGoRoundTheDevices) {
  torch::Tensor a = torch::zeros({50}, On(0));
  for (int i = 0; i < 200; ++i) a = a.to(SimDevice((i + 1) % 5)) + 1;
  ExpectSameBits(a, torch::full({50}, 200.0f));
}

TEST_F(QueuedCallTest, TrainingHasTheCpusBits) {
  torch::manual_seed(1);
  torch::nn::Sequential cpu(torch::nn::Conv2d(2, 4, 3),
                            torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                            torch::nn::Flatten(), torch::nn::Linear(4 * 16, 3));
  auto sim = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(
      cpu->clone(SimDevice(1)));
  torch::optim::AdamW on_cpu(cpu->parameters(), 0.01);
  torch::optim::AdamW on_sim(sim->parameters(), 0.01);
  for (int step = 0; step < 10; ++step) {
    const torch::Tensor x = torch::randn({4, 2, 6, 6});
    for (const bool simulated : {false, true}) {
      auto& optimizer = simulated ? on_sim : on_cpu;
      optimizer.zero_grad();
      const torch::Tensor y =
          simulated ? sim->forward(x.to(SimDevice(1))) : cpu->forward(x);
      torch::cross_entropy_loss(y, torch::tensor({0, 1, 2, 0}).to(y.device()))
          .backward();
      optimizer.step();
    }
  }
  for (size_t i = 0; i < cpu->parameters().size(); ++i) {
    ExpectSameBits(sim->parameters()[i].detach(),
                   cpu->parameters()[i].detach());
  }
}

}  // namespace
}  // namespace tandem
