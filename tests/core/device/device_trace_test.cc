#include "core/device/device_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "core/device/device_moment.h"
#include "core/instrument/trace.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem::device_trace_test {
namespace {

using Clock = TraceEvent::Clock;
using std::chrono::milliseconds;
using testing::IsEmpty;
using testing::SizeIs;

// The two clocks are brought together once, to so much.
constexpr milliseconds kOff(20);

class DeviceTraceTest : public AsynchronousSimTest {};

TEST_F(DeviceTraceTest, OnTheCpuItIsTheHostsTime) {
  { const DeviceTraceScope off("device 0", "off", c10::kCPU); }
  Trace::OfProcess().Start();
  const Clock::time_point before = Clock::now();
  {
    const DeviceTraceScope outer(DeviceTrack(3), "outer", c10::kCPU);
    const DeviceTraceScope inner(DeviceTrack(3), "inner", c10::kCPU);
  }
  const Clock::time_point after = Clock::now();
  const std::vector<TraceEvent> events = Trace::OfProcess().Stop();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].name, "inner");
  EXPECT_EQ(events[1].name, "outer");
  EXPECT_EQ(events[1].track, "device 3");
  EXPECT_LE(before, events[1].start);
  EXPECT_LE(events[1].start, events[0].start);
  EXPECT_LE(events[0].end, events[1].end);
  EXPECT_LE(events[1].end, after);
}

// The host is through long before the device is.
TEST_F(DeviceTraceTest, OfADeviceItIsItsStreams) {
  const c10::Device device = sim::DefaultStream(0).device();
  DeviceMoment::Now(device);  // brings the clocks together
  Trace::OfProcess().Start();
  Clock::time_point issued;
  {
    const HeldStream held(sim::DefaultStream(0));
    {
      const DeviceTraceScope slice("device 0", "layer", device);
      sim::Push(sim::DefaultStream(0),
                [] { std::this_thread::sleep_for(3 * kOff); });
    }
    issued = Clock::now();
    std::this_thread::sleep_for(2 * kOff);
  }
  const std::vector<TraceEvent> events = Trace::OfProcess().Stop();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_GT(events[0].start, issued + kOff / 2);
  EXPECT_GT(events[0].end - events[0].start, 2 * kOff);
  EXPECT_THAT(Trace::OfProcess().Stop(), IsEmpty());
}

}  // namespace
}  // namespace tandem::device_trace_test
