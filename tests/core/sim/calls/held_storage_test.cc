// Storages that are resized while a queue works on what they had.

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

namespace tandem {
namespace {

// A GPU would have a race here; here it writes to nobody else's memory.
TEST(HeldStorageTest, AnotherStreamsMemoryStaysUntilItHasRun) {
  EnableAsynchronousSim();
  const c10::Stream side = sim::PooledStream(0);
  const at::Tensor a = at::ones({1 << 16}, SimDevice(0));
  at::add(a, a);  // the first call finds out the shape
  sim::SynchroniseAll();
  const auto bytes = static_cast<int64_t>(a.nbytes());
  const int64_t before = sim::BooksOf(0).now.total;
  at::Tensor b;
  {
    const HeldStream held(side);
    {
      const c10::StreamGuard on_side(side);
      b = at::add(a, a);
    }
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(a.storage(), 0);
    EXPECT_EQ(sim::BooksOf(0).now.total, before + bytes);
  }
  sim::SynchroniseAll();
  EXPECT_EQ(sim::BooksOf(0).now.total, before);
  EXPECT_TRUE(at::equal(b.cpu(), at::full({1 << 16}, 2.0f)));
}

}  // namespace
}  // namespace tandem
