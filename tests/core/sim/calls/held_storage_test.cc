// Storages that are resized or given up while a queue works on what they had.

#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/add.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "core/sim/memory/memory.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem::held_storage_test {
namespace {

class HeldStorageTest : public AsynchronousSimTest {};

TEST_F(HeldStorageTest, ResizingWaits) {
  at::Tensor a = at::ones({8}, SimDevice(0));
  a.add_(1);
  a.add_(1);
  a.resize_({2000});
  EXPECT_TRUE(at::equal(a.slice(0, 0, 8).cpu(), at::full({8}, 3.0f)));
}

TEST_F(HeldStorageTest, MemoryInUseOutlivesItsTensor) {
  at::Tensor a = at::ones({1000}, SimDevice(0));
  at::Tensor b = a + a;
  sim::SynchroniseAll();
  {
    const HeldStream held(sim::DefaultStream(0));
    b = a + a;
    a = at::Tensor();
  }
  EXPECT_EQ(b.device(), SimDevice(0));
  EXPECT_TRUE(at::equal(b.cpu(), at::full({1000}, 2.0f)));
}

// A GPU would have a race here; here it writes to nobody else's memory.
TEST_F(HeldStorageTest, AnotherStreamsMemoryStaysUntilItHasRun) {
  const c10::Stream side = sim::PooledStream(0);
  const at::Tensor a = at::ones({1 << 16}, SimDevice(0));
  at::add(a, a);  // the first call finds out the shape
  sim::SynchroniseAll();
  const auto bytes = static_cast<int64_t>(a.nbytes());
  const int64_t before = sim::DeviceMemoryStatistics(0).now.total;
  at::Tensor b;
  {
    const HeldStream held(side);
    {
      const c10::StreamGuard on_side(side);
      b = at::add(a, a);
    }
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(a.storage(), 0);
    EXPECT_EQ(sim::DeviceMemoryStatistics(0).now.total, before + bytes);
  }
  sim::SynchroniseAll();
  EXPECT_EQ(sim::DeviceMemoryStatistics(0).now.total, before);
  EXPECT_TRUE(at::equal(b.cpu(), at::full({1 << 16}, 2.0f)));
}

}  // namespace
}  // namespace tandem::held_storage_test
