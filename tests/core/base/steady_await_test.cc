#include "core/base/steady_await.h"

#include <sys/time.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace {

// Seconds by which this process believes the host's clock to be behind what the
// kernel has: waits until a time of that clock are over before they begin, as
// they are when it is set forwards in their middle.
std::atomic<int> behind{0};

}  // namespace

// Stands before the C library's, for Abseil, which asks it for deadlines.
extern "C" int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  timespec now;
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec - behind;
  time->tv_usec = now.tv_nsec / 1000;
  return result;
}

namespace tandem::steady_await_test {
namespace {

// Longer than a thread that has nothing to wait for takes on a busy machine.
constexpr absl::Duration kTimeout = absl::Seconds(1);

class SteadyAwaitTest : public testing::Test {
 protected:
  ~SteadyAwaitTest() override { behind = 0; }

  // How long it waits in vain.
  template <typename Await>
  absl::Duration Waited(Await await) {
    absl::MutexLock lock(&mutex_);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(await(mutex_, absl::Condition(&is_there_), kTimeout));
    return absl::FromChrono(std::chrono::steady_clock::now() - begin);
  }

  absl::Mutex mutex_;
  bool is_there_ = false;
};

TEST_F(SteadyAwaitTest, AClockThatIsSetForwardsEndsNoWait) {
  behind = 7200;
  const auto by_the_hosts_clock = [](absl::Mutex& mutex,
                                     const absl::Condition& condition,
                                     absl::Duration timeout) {
    return mutex.AwaitWithTimeout(condition, timeout);
  };
  EXPECT_LT(Waited(by_the_hosts_clock), kTimeout);
  EXPECT_GE(Waited(AwaitSteadily), kTimeout);
}

TEST_F(SteadyAwaitTest, WhatComesEndsIt) {
  std::thread brings([this] {
    absl::MutexLock lock(&mutex_);
    is_there_ = true;
  });
  {
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(AwaitSteadily(mutex_, absl::Condition(&is_there_),
                              absl::InfiniteDuration()));
  }
  brings.join();
}

TEST_F(SteadyAwaitTest, NoTimeIsALook) {
  absl::MutexLock lock(&mutex_);
  const absl::Condition condition(&is_there_);
  EXPECT_FALSE(AwaitSteadily(mutex_, condition, absl::ZeroDuration()));
  is_there_ = true;
  EXPECT_TRUE(AwaitSteadily(mutex_, condition, absl::ZeroDuration()));
}

}  // namespace
}  // namespace tandem::steady_await_test
