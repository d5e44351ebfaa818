// Every byte of a simulated device is on its books, once.

#include "core/sim/memory/memory.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>
#include <utility>
#include <vector>

#include "core/sim/testing.h"
#include "tests/core/sim/memory/memory_fixture.h"

namespace tandem {
namespace {

using sim::BooksOf;
using Category = MemoryCategory;

class MemoryTest : public MemoryFixture {};

TEST_F(MemoryTest, CountsTensorsExactly) {
  {
    const torch::Tensor a = torch::empty({10, 7}, On(0));
    EXPECT_EQ(Used(), 280);
    const torch::Tensor b = torch::zeros({3}, On(0, torch::kDouble));
    EXPECT_EQ(Used(), 304);
    const torch::Tensor c = torch::ones({5}, On(0, torch::kByte));
    EXPECT_EQ(Used(), 309);
    const torch::Tensor d = torch::empty({0}, On(0));
    EXPECT_EQ(Used(), 309);
    const torch::Tensor e = torch::empty_strided({2, 2}, {8, 1}, On(0));
    EXPECT_EQ(Used(), 309 + 40);
  }
  EXPECT_EQ(Used(), 0);
}

TEST_F(MemoryTest, CountsResultsExactly) {
  const torch::Tensor a = torch::ones({100}, On(0));
  {
    const torch::Tensor b = a + a;
    EXPECT_EQ(Used(), 800);
    const torch::Tensor c = torch::mm(a.view({10, 10}), b.view({10, 10}));
    EXPECT_EQ(Used(), 1200);
    const auto [values, indices] = torch::sort(a);
    EXPECT_EQ(Used(), 1200 + 400 + 800);
    EXPECT_EQ(a.sum().item<float>(), 100);
    EXPECT_EQ(Used(), 2400);
  }
  EXPECT_EQ(Used(), 400);
}

TEST_F(MemoryTest, CountsViewsOnce) {
  torch::Tensor a = torch::ones({8, 8}, On(0));
  const torch::Tensor b = a.view({64});
  const torch::Tensor c = a.t().slice(0, 1, 3);
  const std::vector<torch::Tensor> d = a.chunk(4);
  const torch::Tensor e = a.detach().expand({5, 8, 8});
  EXPECT_EQ(Used(), 256);
  a = torch::Tensor();
  EXPECT_EQ(Used(), 256) << "the views hold it";
}

TEST_F(MemoryTest, InPlaceTakesNothing) {
  torch::Tensor a = torch::ones({50}, On(0));
  torch::Tensor out = torch::empty({50}, On(0));
  sim::ResetPeak(0);
  a.mul_(a).relu_();  // with a number, 4 bytes for it while they run
  a.slice(0, 5, 10).zero_();
  torch::add_out(out, a, a);
  a.copy_(out);
  EXPECT_EQ(Used(), 400);
  EXPECT_EQ(Peak(), 400);
}

TEST_F(MemoryTest, ResizingIsCounted) {
  torch::Tensor a = torch::ones({4}, On(0));
  a.resize_({100});
  EXPECT_EQ(Used(), 400);
  EXPECT_EQ(a.slice(0, 0, 4).sum().item<float>(), 4);
  a.resize_({2});
  EXPECT_EQ(Used(), 400) << "as on other devices, it keeps its memory";
  torch::Tensor out = torch::empty({0}, On(0));
  torch::add_out(out, a, a);
  EXPECT_EQ(Used(), 408);
}

TEST_F(MemoryTest, DevicesAreApart) {
  const torch::Tensor host = torch::ones({25});
  EXPECT_EQ(Used(0), 0) << "the CPU's memory is nobody's";
  const torch::Tensor a = host.to(SimDevice(0));
  EXPECT_EQ(Used(0), 100);
  const torch::Tensor b = a.to(SimDevice(1), torch::kDouble);
  EXPECT_EQ(Used(0), 100);
  EXPECT_EQ(Used(1), 200);
  const torch::Tensor back = b.cpu();
  EXPECT_EQ(Used(0), 100);
  EXPECT_EQ(Used(1), 200);
}

TEST_F(MemoryTest, TemporariesCountWhileTheyLive) {
  const torch::Tensor whole = torch::ones({1000}, On(0, torch::kInt));
  const torch::Tensor real = torch::ones({1000}, On(0));
  sim::ResetPeak(0);
  // The kernel makes a float copy of `whole`, 4,000 bytes, and the result.
  const torch::Tensor sum = whole + real;
  EXPECT_EQ(Used(), 12000);
  EXPECT_EQ(Used(Category::kTemporaries), 0);
  const MemoryUse peak = BooksOf(0).peak;
  EXPECT_EQ(peak.total, 16000);
  EXPECT_EQ(peak.by_category[static_cast<size_t>(Category::kTemporaries)],
            8000);
}

TEST_F(MemoryTest, PeaksAreKeptUntilReset) {
  {
    const torch::Tensor a = torch::empty({250}, On(0));
    EXPECT_EQ(Peak(), 1000);
  }
  EXPECT_EQ(Peak(), 1000);
  const torch::Tensor b = torch::empty({10}, On(0));
  EXPECT_EQ(Peak(), 1000);
  sim::ResetPeak(0);
  EXPECT_EQ(Peak(), 40);
  { const torch::Tensor c = torch::empty({10}, On(0)); }
  EXPECT_EQ(Peak(), 80);
}

TEST_F(MemoryTest, CategoriesFollowTheScope) {
  std::vector<torch::Tensor> all;
  {
    const MemoryCategoryScope parameters(Category::kParameters);
    all.push_back(torch::ones({10}, On(0)));
    {
      const MemoryCategoryScope optimizer(Category::kOptimizer);
      all.push_back(torch::zeros_like(all[0]));
    }
    all.push_back(torch::ones({5}).to(SimDevice(0)));
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
  EXPECT_EQ(DescribeUse(BooksOf(0).now),
            "parameters 60 B, other 40 B, optimizer 40 B, activations 40 B");
}

TEST_F(MemoryTest, WhatABackwardMakesAreGradients) {
  const torch::Tensor x = torch::ones({1000}, On(0)).requires_grad_();
  const torch::Tensor y = (x * x).sin().sum();
  const int64_t before = Used();
  sim::ResetPeak(0);
  y.backward();
  ASSERT_EQ(x.grad().numel(), 1000);
  EXPECT_EQ(Used(Category::kGradients), 4000);
  EXPECT_EQ(Used(Category::kTemporaries), 0);
  EXPECT_GE(Peak(), before + 8000) << "two gradients at once";
  x.mutable_grad() = torch::Tensor();
  EXPECT_EQ(Used(Category::kGradients), 0);
}

TEST_F(MemoryTest, DescribesNothing) {
  EXPECT_EQ(DescribeUse(MemoryUse()), "nothing");
}

TEST_F(MemoryTest, FindsTheDeviceOfAnAddress) {
  const torch::Tensor a = torch::ones({10}, On(1));
  const char* host = static_cast<char*>(sim::ToHostPointer(a.data_ptr()));
  EXPECT_EQ(sim::DeviceHolding(host), 1);
  EXPECT_EQ(sim::DeviceHolding(host + 39), 1);
  EXPECT_EQ(sim::DeviceHolding(host + 40), sim::kHost);
  EXPECT_EQ(sim::DeviceHolding(&a), sim::kHost);
}

TEST_F(MemoryTest, ManyThreadsKeepTheBooks) {
  const SimMemoryCap cap(SimDevice(0), 1 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      const MemoryCategoryScope scope(t % 2 == 0 ? Category::kActivations
                                                 : Category::kOptimizer);
      for (int i = 0; i < 500; ++i) {
        torch::Tensor a = torch::ones({1 + i % 97}, On(t % 2));
        torch::Tensor b = a.add(1).to(SimDevice(1 - t % 2));
        a.resize_({i % 13 + 100});
        if (i % 50 == 0) {
          EXPECT_NE(OutOfMemory([] { torch::empty({1 << 19}, On(0)); }), "");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int device : {0, 1}) {
    for (const int64_t bytes : BooksOf(device).now.by_category) {
      EXPECT_EQ(bytes, 0);
    }
  }
}

// A tensor made on one thread and dropped on another is off the books.
TEST_F(MemoryTest, TensorsMayEndOnOtherThreads) {
  torch::Tensor a = torch::ones({10}, On(0));
  std::thread([moved = std::move(a)]() mutable {
    moved = torch::Tensor();
  }).join();
  EXPECT_EQ(Used(), 0);
}

}  // namespace
}  // namespace tandem
