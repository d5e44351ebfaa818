// When works of simulated devices' streams end: of those that say it to streams
// alone, as NCCL's do.

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "core/comm/collective_runner.h"
#include "core/sim/streams/streams.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem {
namespace {

using Clock = DeviceMoment::Clock;

// What moments may be off by, and the least that is slept.
constexpr auto kSlack = std::chrono::milliseconds(20);

class StreamWork : public c10d::Work {
 public:
  explicit StreamWork(c10::Stream stream) { sim::RecordEvent(end_, stream); }

  void synchronize() override { sim::HoldStream(end_, sim::CurrentStream(0)); }

 private:
  sim::Event end_;
};

class FailedWork : public c10d::Work {
 public:
  void synchronize() override { TORCH_CHECK(false, "it was aborted"); }
};

class WorkTimerTest : public AsynchronousSimTest {
 protected:
  WorkTimer timer_;
};

TEST_F(WorkTimerTest, TellsTheEndHoweverLateSomebodyLooks) {
  const c10::Stream stream = sim::PooledStream(0, /*high_priority=*/true);
  std::optional<DeviceMoment> end;
  Clock::time_point released;
  {
    const HeldStream held(stream);
    StreamWork work(stream);
    end = timer_.EndOf(work, SimDevice(0));
    ASSERT_TRUE(end.has_value());
    EXPECT_FALSE(end->has_come());
    // Nobody else waits for it.
    EXPECT_EQ(sim::CurrentStream(0), sim::DefaultStream(0));
    sim::Synchronise(sim::DefaultStream(0));
    released = Clock::now();
  }
  sim::SynchroniseDevice(0);  // with the timer's own stream
  const Clock::time_point ended = Clock::now();
  std::this_thread::sleep_for(10 * kSlack);
  EXPECT_TRUE(end->has_come());
  EXPECT_GT(end->time(), released - kSlack);
  // Only the look comes after the sleep, however busy the machine is.
  EXPECT_LT(end->time(), ended + 5 * kSlack);
}

// A later work's end is its own, though an earlier one's waiter came first.
TEST_F(WorkTimerTest, OfWorksOnOneStreamEachHasItsEnd) {
  const c10::Stream stream = sim::PooledStream(0, /*high_priority=*/true);
  std::optional<DeviceMoment> first, second;
  {
    const HeldStream held(stream);
    StreamWork one(stream);
    first = timer_.EndOf(one, SimDevice(0));
    sim::Push(stream, [] { std::this_thread::sleep_for(3 * kSlack); });
    StreamWork two(stream);
    second = timer_.EndOf(two, SimDevice(0));
  }
  EXPECT_GT(second->time() - first->time(), kSlack);
}

TEST_F(WorkTimerTest, AFailedWorkHasNone) {
  FailedWork work;
  EXPECT_FALSE(timer_.EndOf(work, SimDevice(0)).has_value());
  EXPECT_EQ(sim::CurrentStream(0), sim::DefaultStream(0));
}

}  // namespace
}  // namespace tandem
