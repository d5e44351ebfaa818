#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "parallel/ddp/logging.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem::step_times_test {
namespace {

constexpr auto kPause = std::chrono::milliseconds(30);

// A step whose parts take kPause each, as its device sees it.
ReducerMoments MomentsOf(c10::Device device, StepTimes* times) {
  const auto pause = [&] {
    if (device.is_cpu()) return std::this_thread::sleep_for(kPause);
    sim::Push(sim::CurrentStream(device.index()),
              [] { std::this_thread::sleep_for(kPause); });
  };
  const auto now = [&] { return DeviceMoment::Now(device); };
  ReducerMoments moments;
  times->BeginForward(device);
  pause();
  times->EndForward(device);
  moments.began = now();
  pause();
  moments.buckets.emplace_back();
  moments.buckets[0].started = now();
  pause();
  moments.gradients_ready = now();
  pause();
  moments.buckets[0].awaited = now();
  moments.ended = now();
  return moments;
}

void ExpectPauses(int64_t nanoseconds, int count) {
  const auto pauses = std::chrono::nanoseconds(count * kPause).count();
  EXPECT_GT(nanoseconds, pauses * 0.7);
  EXPECT_LT(nanoseconds, pauses * 100);  // whatever else the machine does
}

void ExpectTimes(const DdpLoggingData& data) {
  ExpectPauses(data.forward_compute_time, 1);
  ExpectPauses(data.backward_compute_time, 2);
  ExpectPauses(data.backward_comm_time, 2);
  ExpectPauses(data.backward_compute_comm_overlap_time, 1);
}

TEST(StepTimesTest, OnTheCpuAStepIsNotedAtOnce) {
  StepTimes times;
  DdpLoggingData data;
  times.EndStep(1, MomentsOf(c10::kCPU, &times));
  times.Note(/*waits=*/false, &data);
  EXPECT_EQ(data.iteration, 1);
  ExpectTimes(data);
}

TEST(StepTimesTest, OnStreamsWhenTheyHaveComeToItsEnd) {
  EnableAsynchronousSim();
  DeviceMoment::Now(SimDevice(0));
  StepTimes times;
  DdpLoggingData data;
  {
    const HeldStream held(sim::DefaultStream(0));
    for (const int step : {1, 2}) {
      times.EndStep(step, MomentsOf(SimDevice(0), &times));
    }
    times.Note(/*waits=*/false, &data);
    EXPECT_EQ(data.iteration, 0);
  }
  times.Note(/*waits=*/true, &data);
  EXPECT_EQ(data.iteration, 2);
  ExpectTimes(data);
  ExpectPauses(data.avg_backward_comm_time, 2);
}

}  // namespace
}  // namespace tandem::step_times_test
