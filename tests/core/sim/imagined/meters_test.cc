#include "core/sim/imagined/meters.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "core/device/memory_category.h"
#include "core/sim/sim.h"

namespace tandem::meters_test {
namespace {

TEST(SecondsOfTest, TheSlowerOfComputingAndMovingBytesTells) {
  EXPECT_DOUBLE_EQ(sim::RooflineSeconds({600, 100}, {100, 50}), 6);
  EXPECT_DOUBLE_EQ(sim::RooflineSeconds({100, 600}, {100, 50}), 12);
  EXPECT_DOUBLE_EQ(sim::RooflineSeconds({100, 600}, {100, 0}), 1);
  EXPECT_DOUBLE_EQ(sim::RooflineSeconds({100, 600}, {0, 0}), 0);
}

// [m, k] x [k, n] by hand: forward 2 m k n, backward twice that.
TEST(WorkMeterTest, AProductTakesWhatTheFormulaSays) {
  SimOptions options;
  options.imagined = true;
  ASSERT_TRUE(EnableSim(options).ok());
  const double m = 70;
  const double k = 110;
  const double n = 130;
  const sim::DeviceSpeed speed = {1e12, 0};
  sim::SetDeviceSpeed(speed);
  const auto on_device = at::TensorOptions().device(SimDevice(2));
  const at::Tensor a = at::empty({70, 110}, on_device).set_requires_grad(true);
  const at::Tensor b = at::empty({110, 130}, on_device).set_requires_grad(true);
  at::Tensor c;
  {
    const MemoryCategoryScope scope(MemoryCategory::kActivations);
    c = a.mm(b);
  }
  c.backward(at::ones_like(c));
  const sim::DeviceWork work = sim::WorkOf(2);
  EXPECT_EQ(work.forward.calls, 1);
  EXPECT_DOUBLE_EQ(work.forward.flops, 2 * m * k * n);
  EXPECT_DOUBLE_EQ(work.forward.bytes, 4 * (m * k + k * n + m * n));
  EXPECT_DOUBLE_EQ(work.forward.seconds, 2 * m * k * n / 1e12);
  EXPECT_DOUBLE_EQ(work.backward.flops, 4 * m * k * n);
  EXPECT_NEAR(work.backward.seconds, 4 * m * k * n / 1e12, 1e-18);
  EXPECT_EQ(a.grad().sizes(), a.sizes());
  sim::ResetWork(2);
  EXPECT_EQ(sim::WorkOf(2).forward.calls, 0);
}

// A device of 1 byte a second, and links of 10 and 5.
class LinkMeterTest : public testing::Test {
 protected:
  LinkMeterTest() {
    sim::SetDeviceSpeed({0, 1});
    sim::SetLinkSpeed({10, 5});
    for (const int device : {0, 3}) {
      sim::ResetWork(device);
      sim::ResetTraffic(device);
    }
  }
  ~LinkMeterTest() override {
    sim::SetDeviceSpeed({});
    sim::SetLinkSpeed({});
  }

  static void Work(double seconds) { sim::CountWork(3, {0, seconds}); }
};

TEST_F(LinkMeterTest, WhatComesTakesItsLinksTime) {
  sim::CountCopy(3, 20);
  sim::CountCopy(3, 0);
  sim::CountMessage(3, 20);
  const sim::DeviceTraffic traffic = sim::TrafficOf(3);
  EXPECT_DOUBLE_EQ(traffic.copies.bytes, 20);
  EXPECT_DOUBLE_EQ(traffic.copies.seconds, 2);
  EXPECT_EQ(traffic.copies.calls, 2);
  EXPECT_DOUBLE_EQ(traffic.messages.bytes, 20);
  EXPECT_DOUBLE_EQ(traffic.messages.seconds, 4);
  EXPECT_EQ(traffic.messages.calls, 1);
  EXPECT_EQ(sim::TrafficOf(0).copies.calls, 0);
}

TEST_F(LinkMeterTest, ACollectiveIsHiddenBehindWork) {
  Work(1);
  const double end = sim::StartCollective(3, 50);  // 10 seconds
  EXPECT_DOUBLE_EQ(end, 11);
  Work(10);
  sim::AwaitCollective(3, end);
  EXPECT_DOUBLE_EQ(sim::TrafficOf(3).waited, 0);
}

TEST_F(LinkMeterTest, WhatIsNotHiddenIsWaitedFor) {
  Work(1);
  const double end = sim::StartCollective(3, 50);
  Work(3);
  sim::AwaitCollective(3, end);
  EXPECT_DOUBLE_EQ(sim::TrafficOf(3).waited, 7);
  // The clock has waited: nothing is left to wait for.
  sim::AwaitCollective(3, end);
  EXPECT_DOUBLE_EQ(sim::TrafficOf(3).waited, 7);
  EXPECT_DOUBLE_EQ(sim::TrafficOf(3).collectives.seconds, 10);
}

TEST_F(LinkMeterTest, CollectivesRunOneBehindTheOther) {
  const double first = sim::StartCollective(3, 50);
  Work(4);
  const double second = sim::StartCollective(3, 25);
  EXPECT_DOUBLE_EQ(first, 10);
  EXPECT_DOUBLE_EQ(second, 15);
  sim::AwaitCollective(3, second);
  EXPECT_DOUBLE_EQ(sim::TrafficOf(3).waited, 11);
  // The link has been free since then.
  Work(2);
  EXPECT_DOUBLE_EQ(sim::StartCollective(3, 5), 18);
}

TEST_F(LinkMeterTest, ALinkWithoutEndTakesNoTime) {
  sim::SetLinkSpeed({});
  Work(2);
  const double end = sim::StartCollective(3, 1e12);
  EXPECT_DOUBLE_EQ(end, 2);
  sim::AwaitCollective(3, end);
  EXPECT_DOUBLE_EQ(sim::TrafficOf(3).waited, 0);
  EXPECT_DOUBLE_EQ(sim::TrafficOf(3).collectives.bytes, 1e12);
}

}  // namespace
}  // namespace tandem::meters_test
