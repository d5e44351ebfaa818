// When collectives through shared memory run: issued, waited for, polled.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "core/shm/completion_notice.h"
#include "tests/core/shm/ranks.h"

namespace tandem::work_test {
namespace {

TEST(ShmWorkTest, ManyAreIssuedBeforeAnyIsWaitedFor) {
  for (const int n : {2, 7}) {
    OnRanks(n, [&](c10d::Backend& b) {
      std::vector<std::pair<Tensors, c10::intrusive_ptr<c10d::Work>>> issued;
      for (int i = 0; i < 60; ++i) {
        const int64_t size = kSizes[i % 7];
        const at::Tensor mine = Mine(b.getRank(), size, at::kFloat);
        Tensors tensors = {i % 2 == 0 ? mine : Shared(b, mine)};
        auto work = b.allreduce(tensors);
        issued.emplace_back(tensors, work);
      }
      // From the last on, and some never.
      for (int i = 59; i > 40; --i) issued[i].second->wait();
      for (int i = 0; i < 60; ++i) {
        ExpectEqual(issued[i].first[0],
                    Sum(n, issued[i].first[0].numel(), at::kFloat));
      }
    });
  }
}

// A rank that waits for its own part needs another's, who has issued the
// operation and went on to something else.
TEST(ShmWorkTest, WhatNobodyWaitsForGoesOnAllTheSame) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors small = {Mine(b.getRank(), 997, at::kFloat)};
    Tensors middle = {Mine(b.getRank(), 40009, at::kFloat)};
    auto first = b.allreduce(small);
    auto second = b.allreduce(middle);
    if (b.getRank() == 0) {
      second->wait();
      Tensors done = {at::zeros({1})};
      b.send(done, 1, 0)->wait();
    } else {
      Tensors done = {at::zeros({1})};
      b.recv(done, 0, 0)->wait();
      second->wait();
    }
    ExpectEqual(middle[0], Sum(2, 40009, at::kFloat));
  });
}

TEST(ShmWorkTest, FuturesCompleteWithoutAWait) {
  OnRanks(3, [](c10d::Backend& b) {
    for (const int64_t size : kSizes) {
      Tensors tensors = {Mine(b.getRank(), size, at::kFloat)};
      auto work = b.allreduce(tensors);
      auto future = work->getFuture();
      future->wait();
      EXPECT_TRUE(work->isCompleted() && work->isSuccess());
      ExpectEqual(future->value().toTensorVector()[0],
                  Sum(3, size, at::kFloat));
    }
  });
}

TEST(ShmWorkTest, ACompletionIsToldBeforeTheWaitReturns) {
  OnRanks(2, [](c10d::Backend& b) {
    for (const int64_t size : kSizes) {
      Tensors tensors = {Mine(b.getRank(), size, at::kFloat)};
      auto work = b.allreduce(tensors);
      int told = 0;
      auto& notifier = dynamic_cast<NotifiesCompletion&>(*work);
      notifier.OnCompletion([&] { ++told; });
      work->wait();
      EXPECT_EQ(told, 1);
      notifier.OnCompletion([&] { ++told; });
      EXPECT_EQ(told, 2);
    }
  });
}

TEST(ShmWorkTest, AWaitMayEndBeforeTheWorkDoes) {
  for (const int64_t size : {3, 300007}) {
    std::atomic<bool> waited{false};
    OnRanks(2, [&](c10d::Backend& b) {
      Tensors tensors = {Mine(b.getRank(), size, at::kFloat)};
      if (b.getRank() == 1) {
        EXPECT_TRUE(AwaitOtherRanks([&] { return waited.load(); }));
      }
      auto work = b.allreduce(tensors);
      if (b.getRank() == 0) {
        const absl::Status early =
            CatchTorch([&] { work->wait(std::chrono::milliseconds(20)); });
        EXPECT_TRUE(absl::IsDeadlineExceeded(early)) << early;
        EXPECT_FALSE(work->isCompleted());
        waited = true;
      }
      work->wait(std::chrono::seconds(20));
      ExpectEqual(tensors[0], Sum(2, size, at::kFloat));
    });
  }
}

TEST(ShmWorkTest, PollingIsEnough) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors tensors = {Mine(b.getRank(), 13, at::kFloat)};
    auto work = b.allreduce(tensors);
    while (!work->isCompleted()) std::this_thread::yield();
    ExpectEqual(tensors[0], Sum(2, 13, at::kFloat));
  });
}

}  // namespace
}  // namespace tandem::work_test
