#include "core/sim/streams/streams.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include "core/device/device_moment.h"
#include "core/device/own_stream.h"
#include "core/device/placement.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem::streams_test {
namespace {

using Clock = DeviceMoment::Clock;

// The two clocks are brought together once, to so much.
constexpr auto kOff = std::chrono::milliseconds(20);

class DeviceMomentTest : public AsynchronousSimTest {};

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

// Streams of simulated devices' small pools: owners do not share.

class OwnStreamTest : public AsynchronousSimTest {};

// Whoever else takes streams of the pool meanwhile.
TEST_F(OwnStreamTest, AnotherOwnerHasAnotherOne) {
  std::vector<OwnStream> owned;
  std::set<c10::StreamId> ids;
  for (int i = 0; i < 3; ++i) {
    owned.push_back(TakeStream(SimDevice(5)));
    ids.insert(owned.back()->id());
    for (int others = 0; others <= i; ++others) sim::PooledStream(5);
  }
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids.count(sim::DefaultStream(5).id()), 0u);
}

// One that was given back is the next owner's where all others are taken; more
// owners than streams share.
TEST_F(OwnStreamTest, IsGivenBack) {
  std::vector<OwnStream> owned;
  std::set<c10::StreamId> ids;
  for (OwnStream next = TakeStream(SimDevice(6)); ids.insert(next->id()).second;
       next = TakeStream(SimDevice(6))) {
    owned.push_back(next);
  }
  ASSERT_GT(owned.size(), 2u);
  for (OwnStream& each : owned) {
    const c10::StreamId id = each->id();
    each = nullptr;
    each = TakeStream(SimDevice(6));
    EXPECT_EQ(each->id(), id);
  }
  EXPECT_EQ(ids.count(TakeStream(SimDevice(6))->id()), 1u);
}

class PlacementTest : public AsynchronousSimTest {
 protected:
  static at::Tensor Numbers() { return at::arange(7, at::kFloat); }
  static void ExpectNumbersOnDevice(const at::Tensor& placed) {
    EXPECT_EQ(placed.device(), SimDevice(0));
    EXPECT_TRUE(at::equal(placed.cpu(), Numbers()));
  }
};

TEST_F(PlacementTest, WhatIsThereStays) {
  const at::Tensor host = Numbers();
  EXPECT_TRUE(PlaceOn(c10::kCPU, host).is_same(host));
  EXPECT_TRUE(SendTo(c10::kCPU, host).is_same(host));
  const at::Tensor there = host.to(SimDevice(0));
  EXPECT_TRUE(PlaceOn(SimDevice(0), there).is_same(there));
  EXPECT_TRUE(SendTo(SimDevice(0), there).is_same(there));
}

// It could not come back, were it waited for.
TEST_F(PlacementTest, PinnedMemoryIsNotWaitedFor) {
  const at::Tensor pinned = Numbers().pin_memory();
  at::Tensor placed, sent;
  const sim::HostWaits before = sim::CountedHostWaits();
  {
    const HeldStream held(sim::DefaultStream(0));
    placed = PlaceOn(SimDevice(0), pinned);
    sent = SendTo(SimDevice(0), Numbers());
    // It goes beside what the device is busy with, which then waits for it.
    sim::Synchronise(CopyStream(SimDevice(0)));
    EXPECT_FALSE(sim::IsIdle(sim::DefaultStream(0)));
  }
  EXPECT_TRUE(sim::HostWaitsSince(before).empty());
  ExpectNumbersOnDevice(placed);
  ExpectNumbersOnDevice(sent);
}

TEST_F(PlacementTest, WhatUsesItWaitsForIt) {
  const at::Tensor pinned = Numbers().pin_memory();
  at::Tensor sum = PlaceOn(SimDevice(0), pinned) + 1;
  for (int i = 0; i < 20; ++i) {
    sum = PlaceOn(SimDevice(0), pinned) + 1;
    EXPECT_TRUE(at::equal(sum.cpu(), Numbers() + 1)) << i;
  }
}

TEST_F(PlacementTest, PageableMemoryIs) {
  const sim::HostWaits before = sim::CountedHostWaits();
  ExpectNumbersOnDevice(PlaceOn(SimDevice(0), Numbers()));
  EXPECT_EQ(sim::HostWaitsSince(before).at("copy from the host"), 1);
}

// And has what the device had done by then.
TEST_F(PlacementTest, SoIsTheWayBack) {
  const at::Tensor there = Numbers().to(SimDevice(0));
  const sim::HostWaits before = sim::CountedHostWaits();
  EXPECT_TRUE(at::equal(PlaceOn(c10::kCPU, there), Numbers()));
  EXPECT_EQ(sim::HostWaitsSince(before).at("copy to the host"), 1);
}

}  // namespace
}  // namespace tandem::streams_test
