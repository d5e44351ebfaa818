// Every byte of a simulated device is on its books, once.

#include "core/sim/memory/memory.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/sim/testing.h"
#include "tests/core/sim/memory/memory_fixture.h"
#include "tests/core/testing/on_threads.h"

namespace tandem::memory_test {
namespace {

using sim::DeviceMemoryStatistics;
using ::testing::HasSubstr;
using Category = MemoryCategory;

class MemoryTest : public MemoryFixture {};

TEST_F(MemoryTest, CountsTensorsExactly) {
  {
    const at::Tensor a = at::empty({10, 7}, On(0));
    EXPECT_EQ(Used(), 280);
    const at::Tensor b = at::zeros({3}, On(0, at::kDouble));
    EXPECT_EQ(Used(), 304);
    const at::Tensor c = at::ones({5}, On(0, at::kByte));
    EXPECT_EQ(Used(), 309);
    const at::Tensor d = at::empty({0}, On(0));
    EXPECT_EQ(Used(), 309);
    const at::Tensor e = at::empty_strided({2, 2}, {8, 1}, On(0));
    EXPECT_EQ(Used(), 309 + 40);
  }
  EXPECT_EQ(Used(), 0);
}

TEST_F(MemoryTest, CountsResultsExactly) {
  const at::Tensor a = at::ones({100}, On(0));
  {
    const at::Tensor b = a + a;
    EXPECT_EQ(Used(), 800);
    const at::Tensor c = at::mm(a.view({10, 10}), b.view({10, 10}));
    EXPECT_EQ(Used(), 1200);
    const auto [values, indices] = at::sort(a);
    EXPECT_EQ(Used(), 1200 + 400 + 800);
    EXPECT_EQ(a.sum().item<float>(), 100);
    EXPECT_EQ(Used(), 2400);
  }
  EXPECT_EQ(Used(), 400);
}

TEST_F(MemoryTest, CountsViewsOnce) {
  at::Tensor a = at::ones({8, 8}, On(0));
  const at::Tensor b = a.view({64});
  const at::Tensor c = a.t().slice(0, 1, 3);
  const std::vector<at::Tensor> d = a.chunk(4);
  const at::Tensor e = a.detach().expand({5, 8, 8});
  EXPECT_EQ(Used(), 256);
  a = at::Tensor();
  EXPECT_EQ(Used(), 256) << "the views hold it";
}

TEST_F(MemoryTest, InPlaceTakesNothing) {
  at::Tensor a = at::ones({50}, On(0));
  at::Tensor out = at::empty({50}, On(0));
  sim::ResetPeak(0);
  a.mul_(a).relu_();  // with a number, 4 bytes for it while they run
  a.slice(0, 5, 10).zero_();
  at::add_out(out, a, a);
  a.copy_(out);
  EXPECT_EQ(Used(), 400);
  EXPECT_EQ(Peak(), 400);
}

TEST_F(MemoryTest, ResizingIsCounted) {
  at::Tensor a = at::ones({4}, On(0));
  a.resize_({100});
  EXPECT_EQ(Used(), 400);
  EXPECT_EQ(a.slice(0, 0, 4).sum().item<float>(), 4);
  a.resize_({2});
  EXPECT_EQ(Used(), 400) << "as on other devices, it keeps its memory";
  at::Tensor out = at::empty({0}, On(0));
  at::add_out(out, a, a);
  EXPECT_EQ(Used(), 408);
}

TEST_F(MemoryTest, DevicesAreApart) {
  const at::Tensor host = at::ones({25});
  EXPECT_EQ(Used(0), 0) << "the CPU's memory is nobody's";
  const at::Tensor a = host.to(SimDevice(0));
  EXPECT_EQ(Used(0), 100);
  const at::Tensor b = a.to(SimDevice(1), at::kDouble);
  EXPECT_EQ(Used(0), 100);
  EXPECT_EQ(Used(1), 200);
  const at::Tensor back = b.cpu();
  EXPECT_EQ(Used(0), 100);
  EXPECT_EQ(Used(1), 200);
}

TEST_F(MemoryTest, TemporariesCountWhileTheyLive) {
  const at::Tensor whole = at::ones({1000}, On(0, at::kInt));
  const at::Tensor real = at::ones({1000}, On(0));
  sim::ResetPeak(0);
  // The kernel makes a float copy of `whole`, 4,000 bytes, and the result.
  const at::Tensor sum = whole + real;
  EXPECT_EQ(Used(), 12000);
  EXPECT_EQ(Used(Category::kTemporaries), 0);
  const MemoryUse peak = DeviceMemoryStatistics(0).peak;
  EXPECT_EQ(peak.total, 16000);
  EXPECT_EQ(peak.by_category[static_cast<size_t>(Category::kTemporaries)],
            8000);
}

TEST_F(MemoryTest, PeaksAreKeptUntilReset) {
  {
    const at::Tensor a = at::empty({250}, On(0));
    EXPECT_EQ(Peak(), 1000);
  }
  EXPECT_EQ(Peak(), 1000);
  const at::Tensor b = at::empty({10}, On(0));
  EXPECT_EQ(Peak(), 1000);
  sim::ResetPeak(0);
  EXPECT_EQ(Peak(), 40);
  { const at::Tensor c = at::empty({10}, On(0)); }
  EXPECT_EQ(Peak(), 80);
}

TEST_F(MemoryTest, CategoriesFollowTheScope) {
  std::vector<at::Tensor> all;
  {
    const MemoryCategoryScope parameters(Category::kParameters);
    all.push_back(at::ones({10}, On(0)));
    {
      const MemoryCategoryScope optimizer(Category::kOptimizer);
      all.push_back(at::zeros_like(all[0]));
    }
    all.push_back(at::ones({5}).to(SimDevice(0)));
  }
  {
    const MemoryCategoryScope activations(Category::kActivations);
    all.push_back(all[0] + all[1]);
    all.push_back(all[0].view({2, 5}));  // parameters still
    all[1].add_(1);                      // the optimizer's still
  }
  all.push_back(all[0] * 2);
  EXPECT_EQ(Used(Category::kParameters), 60);
  EXPECT_EQ(Used(Category::kOptimizer), 40);
  EXPECT_EQ(Used(Category::kActivations), 40);
  EXPECT_EQ(Used(Category::kOther), 40);
  EXPECT_EQ(Used(), 180);
  EXPECT_EQ(DescribeUse(DeviceMemoryStatistics(0).now),
            "parameters 60 B, other 40 B, optimizer 40 B, activations 40 B");
}

TEST_F(MemoryTest, WhatABackwardMakesAreGradients) {
  const at::Tensor x = at::ones({1000}, On(0)).requires_grad_();
  const at::Tensor y = (x * x).sin().sum();
  const int64_t before = Used();
  sim::ResetPeak(0);
  y.backward();
  ASSERT_EQ(x.grad().numel(), 1000);
  EXPECT_EQ(Used(Category::kGradients), 4000);
  EXPECT_EQ(Used(Category::kTemporaries), 0);
  EXPECT_GE(Peak(), before + 8000) << "two gradients at once";
  x.mutable_grad() = at::Tensor();
  EXPECT_EQ(Used(Category::kGradients), 0);
}

TEST_F(MemoryTest, DescribesNothing) {
  EXPECT_EQ(DescribeUse(MemoryUse()), "nothing");
}

TEST_F(MemoryTest, FindsTheDeviceOfAnAddress) {
  const at::Tensor a = at::ones({10}, On(1));
  const char* host = static_cast<char*>(sim::ToHostPointer(a.data_ptr()));
  EXPECT_EQ(sim::DeviceHolding(host), 1);
  EXPECT_EQ(sim::DeviceHolding(host + 39), 1);
  EXPECT_EQ(sim::DeviceHolding(host + 40), sim::kHost);
  EXPECT_EQ(sim::DeviceHolding(&a), sim::kHost);
}

TEST_F(MemoryTest, ManyThreadsKeepTheBooks) {
  const SimMemoryCap cap(SimDevice(0), 1 << 20);
  OnThreads(8, [](int t) {
    const MemoryCategoryScope scope(t % 2 == 0 ? Category::kActivations
                                               : Category::kOptimizer);
    for (int i = 0; i < 500; ++i) {
      at::Tensor a = at::ones({1 + i % 97}, On(t % 2));
      at::Tensor b = a.add(1).to(SimDevice(1 - t % 2));
      a.resize_({i % 13 + 100});
      if (i % 50 == 0) {
        EXPECT_NE(OutOfMemory([] { at::empty({1 << 19}, On(0)); }), "");
      }
    }
  });
  for (const int device : {0, 1}) {
    for (const int64_t bytes : DeviceMemoryStatistics(device).now.by_category) {
      EXPECT_EQ(bytes, 0);
    }
  }
}

// A tensor made on one thread and dropped on another is off the books.
TEST_F(MemoryTest, TensorsMayEndOnOtherThreads) {
  at::Tensor a = at::ones({10}, On(0));
  std::thread([moved = std::move(a)]() mutable {
    moved = at::Tensor();
  }).join();
  EXPECT_EQ(Used(), 0);
}

// A simulated device with less memory than it is asked for.

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
}  // namespace tandem::memory_test
