#include "core/sim/streams/stream_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/testing/on_threads.h"

namespace tandem::sim::stream_queue_test {
namespace {

// A piece of work that lasts until Open().
class Gate {
 public:
  std::function<void()> Work() {
    return [open = open_] { open.wait(); };
  }
  void Open() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> open_ = promise_.get_future().share();
};

std::string FailureOf(StreamQueue& queue) {
  try {
    queue.Drain();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void Fail(const std::string& what) { throw std::runtime_error(what); }

class StreamQueueOrderTest : public testing::TestWithParam<int> {};

TEST_P(StreamQueueOrderTest, RunsInOrderOnOneThread) {
  StreamQueue queue(GetParam(), 1);
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 100; ++i) {
    queue.Push([&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  }
  queue.Drain();
  ASSERT_EQ(order.size(), 100);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[i], i);
    EXPECT_EQ(threads[i], threads[0]);
  }
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

TEST_P(StreamQueueOrderTest, TakesWorkFromManyThreads) {
  StreamQueue queue(GetParam(), 2);
  std::vector<std::vector<int>> seen(4);
  OnThreads(4, [&](int t) {
    for (int i = 0; i < 50; ++i) {
      queue.Push([&seen, t, i] { seen[t].push_back(i); });
    }
    queue.Drain();
    EXPECT_EQ(seen[t].size(), 50);
  });
  for (const std::vector<int>& each : seen) {
    for (int i = 0; i < 50; ++i) EXPECT_EQ(each[i], i);
  }
}

INSTANTIATE_TEST_SUITE_P(DelayUs, StreamQueueOrderTest,
                         testing::Values(0, 100));

TEST(StreamQueueTest, IsIdleWhenAllHasRun) {
  StreamQueue queue(0, 0);
  EXPECT_TRUE(queue.IsIdle());
  Gate gate;
  queue.Push(gate.Work());
  queue.Push([] {});
  EXPECT_FALSE(queue.IsIdle());
  gate.Open();
  queue.Drain();
  EXPECT_TRUE(queue.IsIdle());
}

TEST(StreamQueueTest, DrainWaitsForWhatWasQueuedBeforeAlone) {
  StreamQueue queue(0, 0);
  Gate first, second;
  std::promise<void> begun;
  queue.Push(first.Work());
  queue.Push([&] { begun.set_value(); });
  std::future<void> drained =
      std::async(std::launch::async, [&] { queue.Drain(); });
  // It may begin to wait after this too: then for both gates.
  queue.Push(second.Work());
  first.Open();
  begun.get_future().wait();
  second.Open();
  drained.wait();
  EXPECT_TRUE(queue.IsIdle());
}

TEST(StreamQueueTest, DrainThrowsTheFirstFailureOnce) {
  StreamQueue queue(0, 0);
  bool ran = false;
  queue.Push([] { Fail("first"); });
  queue.Push([] { Fail("second"); });
  queue.Push([&] { ran = true; });
  EXPECT_EQ(FailureOf(queue), "first");
  EXPECT_TRUE(ran) << "what follows a failure runs";
  EXPECT_EQ(FailureOf(queue), "") << "a failure is told once";
  queue.Push([] { Fail("third"); });
  EXPECT_EQ(FailureOf(queue), "third");
}

TEST(StreamQueueTest, DestructionRunsWhatIsQueued) {
  int ran = 0;
  {
    StreamQueue queue(50, 3);
    for (int i = 0; i < 20; ++i) queue.Push([&] { ++ran; });
    queue.Push([] { Fail("nobody asks"); });
  }
  EXPECT_EQ(ran, 20);
}

TEST(StreamQueueTest, WhatWorkHoldsGoesBeforeDrainReturns) {
  StreamQueue queue(0, 0);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  queue.Push([moved = std::move(held)] {});
  queue.Drain();
  EXPECT_TRUE(watched.expired());
}

// A sleep is never shorter than asked for, so the sum of what a seed gives is a
// lower bound: 200 times 0 to 500 us, 50 ms in the mean.
TEST(StreamQueueTest, HoldsWorkUp) {
  StreamQueue queue(500, 4);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) queue.Push([] {});
  queue.Drain();
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(35));
}

TEST(EventTest, HasPassedBeforeItIsRecorded) {
  Event event;
  EXPECT_TRUE(event.Passed());
  event.Wait();
  EXPECT_EQ(event.mark(), nullptr);
}

TEST(EventTest, PassesWhenItsMarkIsReached) {
  StreamQueue queue(0, 0);
  Gate gate;
  Event event;
  queue.Push(gate.Work());
  queue.Push([mark = event.Record()] { mark->Pass(); });
  EXPECT_FALSE(event.Passed());
  gate.Open();
  event.Wait();
  EXPECT_TRUE(event.Passed());
}

TEST(EventTest, HoldsAnotherQueue) {
  StreamQueue first(100, 5), second(0, 0);
  std::vector<int> order;
  Gate gate;
  Event event;
  first.Push(gate.Work());
  first.Push([&] { order.push_back(1); });
  first.Push([mark = event.Record()] { mark->Pass(); });
  second.Push([mark = event.mark()] { mark->Wait(); });
  second.Push([&] { order.push_back(2); });
  gate.Open();
  second.Drain();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(EventTest, ANewRecordingLeavesTheOldOneAlone) {
  Event event;
  const std::shared_ptr<Event::Mark> old = event.Record();
  const Event copy = event;
  const std::shared_ptr<Event::Mark> now = event.Record();
  EXPECT_NE(old, now);
  now->Pass();
  EXPECT_TRUE(event.Passed());
  EXPECT_FALSE(copy.Passed());
  old->Pass();
  EXPECT_TRUE(copy.Passed());
}

}  // namespace
}  // namespace tandem::sim::stream_queue_test
