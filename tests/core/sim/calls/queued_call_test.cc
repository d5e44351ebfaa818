// Operators in asynchronous mode: they come back at once, and have the CPU's
// values when somebody waits.

#include "core/sim/calls/queued_call.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/core/sim/asynchronous.h"
#include "tests/core/testing/thrown.h"

namespace tandem::queued_call_test {
namespace {

using testing::HasSubstr;

class QueuedCallTest : public AsynchronousSimTest {};

at::TensorOptions On(int device, at::ScalarType dtype = at::kFloat) {
  return at::TensorOptions().dtype(dtype).device(SimDevice(device));
}

c10::Stream Default(int device) { return sim::DefaultStream(device); }

void ExpectSameBits(const at::Tensor& sim, const at::Tensor& cpu) {
  EXPECT_EQ(sim.device().type(), c10::DeviceType::PrivateUse1);
  EXPECT_TRUE(at::equal(sim.cpu(), cpu)) << sim.sizes();
}

TEST_F(QueuedCallTest, CallsComeBackBeforeTheyRun) {
  const at::Tensor a = at::ones({16, 16}, On(0));
  at::mm(a, a);  // the first call finds out the shape
  sim::SynchroniseAll();
  at::Tensor b;
  {
    const HeldStream held(Default(0));
    b = at::mm(a, a);
    EXPECT_EQ(b.sizes(), at::IntArrayRef({16, 16}));
    EXPECT_EQ(b.device(), SimDevice(0));
    EXPECT_FALSE(sim::IsIdle(Default(0)));
  }
  ExpectSameBits(b, at::full({16, 16}, 16.0f));
}

TEST_F(QueuedCallTest, ALongChainHasTheCpusBits) {
  at::manual_seed(5);
  const at::Tensor start = at::randn({32, 32});
  at::Tensor cpu = start;
  at::Tensor sim = start.to(SimDevice(0));
  for (int i = 0; i < 100; ++i) {
    cpu = at::softmax(at::mm(cpu, start) + cpu.t(), 1) - 0.01 * i;
    sim = at::softmax(at::mm(sim, start.to(SimDevice(0))) + sim.t(), 1) -
          0.01 * i;
  }
  ExpectSameBits(sim, cpu);
}

// A step's learning rate is such a number.
TEST_F(QueuedCallTest, OtherRealNumbersAreNoOtherCall) {
  at::Tensor a = at::ones({16}, On(0));
  const at::Tensor b = at::ones({16}, On(0));
  a.addcdiv_(b, b, 0.5).lerp_(b, 0.25).clamp_(0.5, 2.5);
  at::Tensor c = at::pow(a, 2.5);
  a.fill_(1.0);
  sim::SynchroniseAll();
  {
    const HeldStream held(Default(0));
    a.addcdiv_(b, b, 0.75).lerp_(b, 0.5).clamp_(0.0, 1.25);
    c = at::pow(a, 3.0);
    a.fill_(7.0);
  }
  ExpectSameBits(c, at::full({16}, 1.25f * 1.25f * 1.25f));
  ExpectSameBits(a, at::full({16}, 7.0f));
}

TEST_F(QueuedCallTest, NumbersThatDecideOnShapesOrDtypesAre) {
  for (const double end : {1.5, 2.5, 1.5, 0.5}) {
    ExpectSameBits(at::arange(0, end, 0.5, On(0)), at::arange(0, end, 0.5));
  }
  const at::Tensor whole = at::full({4}, 3, On(0, at::kLong));
  ExpectSameBits(at::pow(whole, 2), at::full({4}, 9, at::kLong));
  ExpectSameBits(at::pow(whole, 2.0), at::full({4}, 9.0f));
  ExpectSameBits(at::pow(whole, 3), at::full({4}, 27, at::kLong));
  for (const int dimension : {0, 1}) {
    ExpectSameBits(at::ones({2, 3}, On(0)).sum(dimension),
                   at::ones({2, 3}).sum(dimension));
  }
}

TEST_F(QueuedCallTest, AnIndexErrorComesAtTheSynchronisation) {
  const at::Tensor table = at::arange(10, On(0));
  const at::Tensor good = at::tensor({1, 2, 3}, at::kLong).to(SimDevice(0));
  const at::Tensor bad = at::tensor({1, 99, 3}, at::kLong).to(SimDevice(0));
  ExpectSameBits(table.index_select(0, good), at::tensor({1.f, 2.f, 3.f}));
  at::Tensor result;
  EXPECT_EQ(Thrown([&] { result = table.index_select(0, bad); }), "");
  EXPECT_EQ(result.sizes(), at::IntArrayRef({3}));
  EXPECT_THAT(Thrown([] { Default(0).synchronize(); }),
              HasSubstr("index out of range"));
  // Once; the device goes on.
  EXPECT_EQ(Thrown([] { Default(0).synchronize(); }), "");
  ExpectSameBits(table.index_select(0, good), at::tensor({1.f, 2.f, 3.f}));
}

TEST_F(QueuedCallTest, AnErrorComesWithTheFirstValueThatIsLookedAt) {
  const at::Tensor table = at::arange(10, On(0));
  const at::Tensor good = at::tensor({1}, at::kLong).to(SimDevice(0));
  const at::Tensor bad = at::tensor({-50}, at::kLong).to(SimDevice(0));
  table.index_select(0, good);
  table.index_select(0, bad);
  EXPECT_THAT(Thrown([&] { table.sum().item<float>(); }),
              HasSubstr("index out of range"));
  EXPECT_EQ(table.sum().item<float>(), 45);
}

TEST_F(QueuedCallTest, WrongShapesAreAnErrorAtOnce) {
  const at::Tensor a = at::ones({2, 3}, On(0));
  EXPECT_THAT(Thrown([&] { at::mm(a, a); }), HasSubstr("cannot be multip"));
  EXPECT_THAT(Thrown([&] {
                a + at::ones({2, 3}, On(1));
              }),
              HasSubstr("sim:0 and sim:1"));
}

TEST_F(QueuedCallTest, WhatDependsOnValuesWaitsForThem) {
  for (int i = 0; i < 20; ++i) {
    at::Tensor a = at::zeros({100}, On(0));
    a.slice(0, 10, 20 + i).fill_(1);
    EXPECT_EQ(a.nonzero().size(0), 10 + i);
    EXPECT_EQ(a.masked_select(a > 0).numel(), 10 + i);
    EXPECT_EQ(a.index({a == 1}).numel(), 10 + i);
    EXPECT_EQ(std::get<0>(at::_unique2(a)).numel(), 2);
    EXPECT_EQ(a.sum().item<float>(), 10 + i);
    EXPECT_TRUE(at::equal(a, a.clone()));
    EXPECT_TRUE(a.any().item<bool>());
    const at::Tensor counts = at::full({3}, 2 + i, On(0, at::kLong));
    EXPECT_EQ(at::repeat_interleave(a.slice(0, 0, 3), counts).numel(),
              3 * (2 + i));
  }
}

TEST_F(QueuedCallTest, ViewsNeedNoQueue) {
  at::Tensor a = at::zeros({4, 6}, On(0));
  at::Tensor cpu = at::zeros({4, 6});
  a.fill_(1);
  sim::SynchroniseAll();
  {
    const HeldStream held(Default(0));
    const at::Tensor view = a.t().slice(0, 1, 3);
    EXPECT_EQ(view.sizes(), at::IntArrayRef({2, 4}));
    EXPECT_TRUE(view.is_alias_of(a));
  }
  for (at::Tensor* each : {&a, &cpu}) {
    each->fill_(1);
    each->t().slice(0, 1, 3).mul_(2);
    each->select(0, 2).add_(each->select(0, 1));
    each->view({24}).slice(0, 5, 7).zero_();
  }
  ExpectSameBits(a, cpu);
  ExpectSameBits(a.t().slice(0, 1, 3), cpu.t().slice(0, 1, 3));
}

TEST_F(QueuedCallTest, InPlaceAndOutKeepTheOrder) {
  at::Tensor a = at::ones({32}, On(0));
  at::Tensor out = at::empty({32}, On(0));
  at::Tensor grows = at::empty({0}, On(0));
  const void* memory = out.data_ptr();
  at::Tensor cpu = at::ones({32});
  for (int i = 0; i < 50; ++i) {
    a.add_(1).mul_(0.5);
    at::add_out(out, a, a);
    a.copy_(out).sub_(0.25);
    cpu.add_(1).mul_(0.5);
    cpu.copy_(cpu + cpu).sub_(0.25);
  }
  ExpectSameBits(a, cpu);
  EXPECT_EQ(out.data_ptr(), memory);
  for (int i = 0; i < 3; ++i) {
    grows.resize_({0});
    at::add_out(grows, a, a);
    ExpectSameBits(grows, cpu + cpu);
  }
}

TEST_F(QueuedCallTest, RandomNumbersComeInTheOrderOfTheCalls) {
  for (int i = 0; i < 10; ++i) {
    at::manual_seed(i);
    std::vector<at::Tensor> sim;
    for (int n = 0; n < 5; ++n) {
      sim.push_back(at::randn({64}, On(0)));
      sim.push_back(at::dropout(at::ones({64}, On(0)), 0.5, true));
      sim.push_back(at::randperm(64, On(0, at::kLong)));
    }
    at::manual_seed(i);
    for (int n = 0; n < 5; ++n) {
      ExpectSameBits(sim[3 * n], at::randn({64}));
      ExpectSameBits(sim[3 * n + 1], at::dropout(at::ones({64}), 0.5, true));
      ExpectSameBits(sim[3 * n + 2], at::randperm(64));
    }
  }
}

// What was called before has its numbers from before.
TEST_F(QueuedCallTest, SeedingAndStatesWaitForTheCallsBefore) {
  at::Tensor drawn = at::empty({64}, On(0));
  at::manual_seed(3);
  drawn.normal_();
  at::manual_seed(3);
  const at::Tensor first = at::randn({64});
  const at::Tensor second = at::randn({64});
  for (int i = 0; i < 20; ++i) {
    at::manual_seed(3);
    drawn.normal_();
    at::manual_seed(4);
    ExpectSameBits(drawn, first);

    at::manual_seed(3);
    drawn.normal_();
    at::Generator generator =
        at::globalContext().defaultGenerator(SimDevice(0));
    const at::Tensor state = generator.get_state();
    drawn.normal_();
    generator.set_state(state);
    ExpectSameBits(drawn, second);
    drawn.normal_();
    ExpectSameBits(drawn, second);
  }
}

// -- Copies ------------------------------------------------------------------

TEST_F(QueuedCallTest, ACopyToTheHostWaits) {
  at::Tensor a = at::zeros({100}, On(0));
  for (int i = 0; i < 50; ++i) {
    a.add_(1);
    EXPECT_EQ(a.cpu()[99].item<float>(), i + 1);
    at::Tensor host = at::zeros({100});
    host.copy_(a, /*non_blocking=*/true);  // not pinned
    EXPECT_EQ(host[99].item<float>(), i + 1);
  }
}

TEST_F(QueuedCallTest, APinnedCopyToTheHostDoesNotWait) {
  at::Tensor host = at::zeros({100}).pin_memory();
  at::Tensor a = at::full({100}, 3.0f, On(0));
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
  at::Tensor host = at::full({100}, 1.0f).pin_memory();
  at::Tensor a = at::zeros({100}, On(0));
  sim::SynchroniseAll();
  {
    const HeldStream held(Default(0));
    a.copy_(host, /*non_blocking=*/true);
    host.fill_(2);  // too early: the device has not read it
  }
  ExpectSameBits(a, at::full({100}, 2.0f));
  a.copy_(host, /*non_blocking=*/true);
  Default(0).synchronize();
  host.fill_(7);
  ExpectSameBits(a, at::full({100}, 2.0f));
}

TEST_F(QueuedCallTest, AnOrdinaryCopyToTheDeviceHasRead) {
  for (const bool non_blocking : {false, true}) {
    at::Tensor host = at::full({100}, 1.0f);
    const at::Tensor a = host.to(SimDevice(0), non_blocking);
    host.fill_(2);
    ExpectSameBits(a, at::full({100}, 1.0f));
  }
}

void WarmUpAdd(int device) {
  at::Tensor a = at::ones({100}, On(device));
  a.add_(1);
  sim::SynchroniseAll();
}

TEST_F(QueuedCallTest, ACopyBetweenDevicesWaitsForItsSource) {
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    WarmUpAdd(from);
    at::Tensor a = at::ones({100}, On(from));
    at::Tensor b = at::zeros({100}, On(to));
    sim::SynchroniseAll();
    {
      const HeldStream held(Default(from));
      a.add_(1);
      b.copy_(a, /*non_blocking=*/true);
      a.add_(1);  // after the copy has read
      EXPECT_FALSE(sim::IsIdle(Default(to))) << "what follows there waits too";
    }
    ExpectSameBits(b, at::full({100}, 2.0f));
    ExpectSameBits(a, at::full({100}, 3.0f));
  }
}

TEST_F(QueuedCallTest, ACopyBetweenDevicesWaitsForItsTarget) {
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    WarmUpAdd(to);
    at::Tensor a = at::full({100}, 9.0f, On(from));
    at::Tensor b = at::ones({100}, On(to));
    at::Tensor before = at::zeros({100}, On(to));
    sim::SynchroniseAll();
    {
      const HeldStream held(Default(to));
      before.copy_(b);  // reads what the copy replaces
      b.copy_(a);
      b.add_(1);
    }
    ExpectSameBits(before, at::full({100}, 1.0f));
    ExpectSameBits(b, at::full({100}, 10.0f));
  }
}

TEST_F(QueuedCallTest, TensorsGoRoundTheDevices) {
  at::Tensor a = at::zeros({50}, On(0));
  for (int i = 0; i < 200; ++i) a = a.to(SimDevice((i + 1) % 5)) + 1;
  ExpectSameBits(a, at::full({50}, 200.0f));
}

TEST_F(QueuedCallTest, TrainingHasTheCpusBits) {
  at::manual_seed(1);
  torch::nn::Sequential cpu(torch::nn::Conv2d(2, 4, 3),
                            torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                            torch::nn::Flatten(), torch::nn::Linear(4 * 16, 3));
  auto sim = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(
      cpu->clone(SimDevice(1)));
  torch::optim::AdamW on_cpu(cpu->parameters(), 0.01);
  torch::optim::AdamW on_sim(sim->parameters(), 0.01);
  for (int step = 0; step < 10; ++step) {
    const at::Tensor x = at::randn({4, 2, 6, 6});
    for (const bool simulated : {false, true}) {
      auto& optimizer = simulated ? on_sim : on_cpu;
      optimizer.zero_grad();
      const at::Tensor y =
          simulated ? sim->forward(x.to(SimDevice(1))) : cpu->forward(x);
      at::cross_entropy_loss(y,
                             at::tensor({0, 1, 2, 0}, at::kLong).to(y.device()))
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
}  // namespace tandem::queued_call_test
