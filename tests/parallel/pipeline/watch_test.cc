#include "parallel/pipeline/watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/synchronization/notification.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using Clock = DeviceProgress::Clock;

TEST(PipelineWatchTest, ProgressSaysWhatRunsForLong) {
  DeviceProgress progress;
  const Clock::time_point now = Clock::now();
  EXPECT_FALSE(progress.RunningSinceBefore(now).has_value());
  progress.Starts(3, now);
  EXPECT_EQ(progress.RunningSinceBefore(now), 3);
  EXPECT_FALSE(progress.RunningSinceBefore(now - milliseconds(1)).has_value());
  progress.Ends();
  EXPECT_FALSE(progress.RunningSinceBefore(now).has_value());
}

TEST(PipelineWatchTest, AHangIsToldOnce) {
  DeviceProgress idle, busy;
  busy.Starts(7, Clock::now());
  std::atomic<int> calls{0};
  absl::Notification told;
  HangWatch watch({&idle, &busy}, milliseconds(40));
  watch.Begin([&](size_t device, int action) {
    EXPECT_EQ(device, 1u);
    EXPECT_EQ(action, 7);
    if (++calls == 1) told.Notify();
  });
  told.WaitForNotification();
  std::this_thread::sleep_for(milliseconds(100));
  watch.End();
  EXPECT_EQ(calls, 1);
}

// Each step's hang is one of its own.
TEST(PipelineWatchTest, IsToldOfEachStep) {
  DeviceProgress busy;
  busy.Starts(0, Clock::now());
  HangWatch watch({&busy}, milliseconds(10));
  for (int step = 0; step < 3; ++step) {
    absl::Notification told;
    watch.Begin([&](size_t, int) { told.Notify(); });
    told.WaitForNotification();
    watch.End();
  }
}

TEST(PipelineWatchTest, BetweenStepsNothingIsAsked) {
  DeviceProgress busy;
  busy.Starts(0, Clock::now());
  HangWatch watch({&busy}, milliseconds(4));
  std::atomic<int> calls{0};
  watch.Begin([&](size_t, int) { ++calls; });
  watch.End();
  const int before = calls;
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(calls, before);
}

TEST(PipelineWatchDeathTest, EndsTheProcessWithItsMessage) {
  EXPECT_EXIT(EndProcess("stage 1 hangs"), testing::ExitedWithCode(1),
              "stage 1 hangs");
}

}  // namespace
}  // namespace tandem
