#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "core/device/memory_category.h"
#include "core/sim/imagined/meters.h"
#include "core/sim/sim.h"

namespace tandem {
namespace {

TEST(SecondsOfTest, TheSlowerOfComputingAndMovingBytesTells) {
  EXPECT_DOUBLE_EQ(sim::SecondsOf({600, 100}, {100, 50}), 6);
  EXPECT_DOUBLE_EQ(sim::SecondsOf({100, 600}, {100, 50}), 12);
  EXPECT_DOUBLE_EQ(sim::SecondsOf({100, 600}, {100, 0}), 1);
  EXPECT_DOUBLE_EQ(sim::SecondsOf({100, 600}, {0, 0}), 0);
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

}  // namespace
}  // namespace tandem
