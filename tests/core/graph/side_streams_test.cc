// Streams beside the default ones, of several devices.

#include "core/graph/side_streams.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "core/sim/streams/device_guard.h"
#include "core/sim/streams/streams.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem::side_streams_test {
namespace {

class SideStreamsTest : public testing::Test {
 protected:
  void SetUp() override { EnableAsynchronousSim(); }
  void TearDown() override { sim::SynchroniseAll(); }
};

bool IsOnDefault(int8_t device) {
  return sim::CurrentStream(device) == sim::DefaultStream(device);
}

TEST_F(SideStreamsTest, AScopeIsOfAllOrOfOne) {
  const SideStreams sides({SimDevice(0), SimDevice(1), SimDevice(0)});
  EXPECT_FALSE(sides.empty());
  {
    const SideStreams::Scope scope(sides);
    EXPECT_FALSE(IsOnDefault(0));
    EXPECT_FALSE(IsOnDefault(1));
    EXPECT_TRUE(IsOnDefault(2));
    EXPECT_EQ(sim::CurrentDevice(), 0);
  }
  EXPECT_TRUE(IsOnDefault(0));
  EXPECT_TRUE(IsOnDefault(1));
  const SideStreams::Scope scope(sides, SimDevice(1));
  EXPECT_TRUE(IsOnDefault(0));
  EXPECT_FALSE(IsOnDefault(1));
}

TEST_F(SideStreamsTest, WithoutDevicesAScopeDoesNothing) {
  const SideStreams none;
  EXPECT_TRUE(none.empty());
  const SideStreams::Scope all(none);
  const SideStreams::Scope one(none, SimDevice(0));
  EXPECT_TRUE(IsOnDefault(0));
}

// Work goes behind what came before, and what comes afterwards behind it.
TEST_F(SideStreamsTest, WorkIsInOrder) {
  const SideStreams sides({SimDevice(0), SimDevice(1)});
  at::Tensor x = at::ones({8}, at::device(SimDevice(1)));
  x.mul_(3);
  {
    const SideStreams::Scope scope(sides);
    x.add_(1);
  }
  x.mul_(2);
  EXPECT_EQ(x[0].item<float>(), 8);
}

}  // namespace
}  // namespace tandem::side_streams_test
