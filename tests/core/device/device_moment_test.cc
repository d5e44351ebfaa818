#include "core/device/device_moment.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "core/sim/streams/streams.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem::device_moment_test {
namespace {

using Clock = DeviceMoment::Clock;

// The two clocks are brought together once, to so much.
constexpr auto kOff = std::chrono::milliseconds(20);

class DeviceMomentTest : public testing::Test {
 protected:
  void SetUp() override { EnableAsynchronousSim(); }
  void TearDown() override { sim::SynchroniseAll(); }
};

TEST_F(DeviceMomentTest, OnTheCpuItIsTheHosts) {
  const Clock::time_point before = Clock::now();
  const DeviceMoment moment = DeviceMoment::Now(c10::kCPU);
  EXPECT_TRUE(moment.has_come());
  EXPECT_EQ(moment.time(), moment.issued());
  EXPECT_GE(moment.time(), before);
  EXPECT_LE(moment.time(), Clock::now());
}

TEST_F(DeviceMomentTest, ComesWhenItsStreamDoes) {
  DeviceMoment::Now(SimDevice(0));  // brings the clocks together
  DeviceMoment first, last;
  std::promise<Clock::time_point> ran;
  Clock::time_point released;
  {
    const HeldStream held(sim::DefaultStream(0));
    first = DeviceMoment::Now(SimDevice(0));
    sim::Push(sim::DefaultStream(0), [&] {
      std::this_thread::sleep_for(2 * kOff);
      ran.set_value(Clock::now());
    });
    last = DeviceMoment::Now(SimDevice(0));
    EXPECT_FALSE(first.has_come());
    EXPECT_FALSE(last.has_come());
    std::this_thread::sleep_for(2 * kOff);
    released = Clock::now();
  }
  const Clock::time_point end = last.time();  // waits
  EXPECT_TRUE(first.has_come());
  EXPECT_TRUE(last.has_come());
  EXPECT_GT(first.time(), released - kOff);
  EXPECT_GT(end - first.time(), kOff);
  EXPECT_GT(end, ran.get_future().get() - kOff);
  // The origin's time is taken late where the machine is busy.
  EXPECT_LT(end, Clock::now() + 100 * kOff);
  EXPECT_LT(last.issued(), released);
}

// Not even the first one, which brings the clocks together.
TEST_F(DeviceMomentTest, WhatTheDeviceHasToDoIsNotWaitedFor) {
  const HeldStream held(sim::DefaultStream(2));
  EXPECT_FALSE(DeviceMoment::Now(SimDevice(2)).has_come());
}

TEST_F(DeviceMomentTest, AnotherDevicesStreamIsNotWaitedFor) {
  DeviceMoment::Now(SimDevice(0));
  DeviceMoment::Now(SimDevice(1));
  const HeldStream held(sim::DefaultStream(0));
  DeviceMoment::Now(SimDevice(1)).time();
}

}  // namespace
}  // namespace tandem::device_moment_test
