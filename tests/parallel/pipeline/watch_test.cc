#include "parallel/pipeline/watch.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>

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

TEST(PipelineWatchTest, TheFirstErrorIsReturned) {
  std::vector<std::future<absl::Status>> running;
  for (const absl::Status& each :
       {absl::OkStatus(), absl::InternalError("first"),
        absl::InternalError("second")}) {
    std::promise<absl::Status> promise;
    promise.set_value(each);
    running.push_back(promise.get_future());
  }
  EXPECT_EQ(AwaitDevices(std::move(running), {}, milliseconds(100),
                         [](size_t, int) { FAIL(); })
                .message(),
            "first");
}

TEST(PipelineWatchTest, AHangIsToldOnce) {
  DeviceProgress idle, busy;
  busy.Starts(7, Clock::now());
  std::promise<absl::Status> end;
  std::vector<std::future<absl::Status>> running;
  running.push_back(end.get_future());
  int calls = 0;
  std::thread later;
  const absl::Status status =
      AwaitDevices(std::move(running), {&idle, &busy}, milliseconds(40),
                   [&](size_t device, int action) {
                     EXPECT_EQ(device, 1u);
                     EXPECT_EQ(action, 7);
                     ++calls;
                     later = std::thread([&] {
                       std::this_thread::sleep_for(milliseconds(100));
                       end.set_value(absl::OkStatus());
                     });
                   });
  later.join();
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(calls, 1);
}

TEST(PipelineWatchDeathTest, EndsTheProcessWithItsMessage) {
  EXPECT_EXIT(EndProcess("stage 1 hangs"), testing::ExitedWithCode(1),
              "stage 1 hangs");
}

}  // namespace
}  // namespace tandem
