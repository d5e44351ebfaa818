#include "core/shm/queue.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "core/shm/chunks.h"
#include "core/shm/collectives.h"
#include "core/shm/completion_notice.h"
#include "core/shm/memory/connect.h"
#include "core/shm/memory/rounds.h"
#include "core/shm/memory/segment.h"
#include "tests/core/shm/ranks.h"

namespace tandem::queue_test {
namespace {

// Reduce and broadcast of tensors that lie in common memory: on all ranks, or
// on some. (The all-reduce's: shm_all_reduce_test.)

// Too small for it, several blocks, and many.
constexpr int64_t kInPlaceSizes[] = {13, 10007, 150001};

void ReduceAndBroadcast(c10d::Backend& b, at::ScalarType type, bool shared) {
  const int n = b.getSize();
  const int root = n - 1;
  for (const int64_t size : kInPlaceSizes) {
    const at::Tensor mine = Mine(b.getRank(), size, type);
    Tensors tensors = {shared ? Shared(b, mine) : mine.clone()};
    c10d::ReduceOptions reduce;
    reduce.rootRank = root;
    b.reduce(tensors, reduce)->wait();
    ExpectEqual(tensors[0], b.getRank() == root ? Sum(n, size, type) : mine);
    c10d::BroadcastOptions broadcast;
    broadcast.rootRank = root;
    b.broadcast(tensors, broadcast)->wait();
    ExpectEqual(tensors[0], Sum(n, size, type));
  }
}

TEST(ShmInPlaceTest, AllTensorsInCommonMemory) {
  for (const int n : {1, 2, 7}) {
    OnRanks(n,
            [](c10d::Backend& b) { ReduceAndBroadcast(b, at::kFloat, true); });
  }
}

TEST(ShmInPlaceTest, EveryDtype) {
  OnRanks(3, [](c10d::Backend& b) {
    for (const at::ScalarType type : kNumbers) {
      ReduceAndBroadcast(b, type, true);
    }
  });
}

TEST(ShmInPlaceTest, SomeTensorsInCommonMemory) {
  for (const int n : {2, 7}) {
    OnRanks(n, [](c10d::Backend& b) {
      ReduceAndBroadcast(b, at::kFloat, b.getRank() % 2 == 0);
    });
  }
}

// Tests of who runs what was issued, when its issuer does not wait for it.

// Too much to be copied when it is issued, too little to run in the background.
constexpr size_t kBytes = 128 << 10;
constexpr std::chrono::milliseconds kPatient = std::chrono::minutes(10);

class ShmQueueTest : public testing::Test {
 protected:
  ShmQueueTest() {
    auto segment = ShmSegment::Map(ShmSegment::NewMemory(2).value(), 2);
    EXPECT_TRUE(segment.ok()) << segment.status();
    segment_ = *std::move(segment);
    connections_.peers.resize(2);
  }

  // A broadcast from rank 0.
  static ShmCollectivePtr Broadcast(std::vector<std::byte>& tensor) {
    return MakeBroadcast({{tensor.data(), tensor.size()}}, 0, 0);
  }

  ShmSegment segment_;
  ShmConnections connections_;
  std::vector<std::byte> sent_ = std::vector<std::byte>(kBytes, std::byte{7});
  std::vector<std::byte> received_ = std::vector<std::byte>(kBytes);
};

// A peer counts as impatient for its whole wait, and not for as long as it
// sleeps: it may be awake at the moment when a task is issued, and would sleep
// again without having rung.
TEST_F(ShmQueueTest, ATaskIsBegunWhenAPeerHasAskedBeforeAndIsJustAwake) {
  ShmQueue queue(&segment_, 0, &connections_);
  segment_.shared().impatient.fetch_add(1);
  const auto task = queue.Issue(Broadcast(sent_), nullptr, kPatient);
  while (!Reached(segment_.page(0).rounds.value(), 1)) {
    std::this_thread::yield();
  }
  ShmRounds peer(&segment_, 1, &connections_);
  const ShmCollectivePtr collective = Broadcast(received_);
  collective->Begin(peer);
  const absl::Status status =
      collective->Finish(peer, std::chrono::steady_clock::now() + kPatient);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(received_, sent_);
  EXPECT_TRUE(queue.Wait(*task, std::chrono::milliseconds(0)).ok());
}

TEST_F(ShmQueueTest, APeerThatWaitsLongIsServedWhateverTheIssuerDoes) {
  ShmQueue queue(&segment_, 0, &connections_);
  absl::Status status;
  std::thread peer([&] {
    ShmRounds rounds(&segment_, 1, &connections_);
    const ShmCollectivePtr collective = Broadcast(received_);
    collective->Begin(rounds);
    status =
        collective->Finish(rounds, std::chrono::steady_clock::now() + kPatient);
  });
  while (segment_.shared().impatient.load() == 0) std::this_thread::yield();
  const auto task = queue.Issue(Broadcast(sent_), nullptr, kPatient);
  peer.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(received_, sent_);
  EXPECT_EQ(segment_.shared().impatient.load(), 0U) << "it waits no more";
  EXPECT_TRUE(queue.Wait(*task, std::chrono::milliseconds(0)).ok());
}

// When collectives through shared memory run: issued, waited for, polled.

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
}  // namespace tandem::queue_test
