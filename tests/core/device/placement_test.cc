#include "core/device/placement.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "core/sim/streams/host_waits.h"
#include "core/sim/streams/streams.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem::placement_test {
namespace {

class PlacementTest : public testing::Test {
 protected:
  void SetUp() override { EnableAsynchronousSim(); }
  void TearDown() override { sim::SynchroniseAll(); }

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
}  // namespace tandem::placement_test
