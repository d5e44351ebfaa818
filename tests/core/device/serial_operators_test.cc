#include "core/device/serial_operators.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tandem {
namespace {

TEST(SerialOperatorsTest, HoldForTheirThreadAndScope) {
  at::set_num_threads(3);
  ASSERT_EQ(at::get_num_threads(), 3);
  {
    const SerialOperators serial;
    EXPECT_EQ(at::get_num_threads(), 1);
    {
      const SerialOperators nested;
      EXPECT_EQ(at::get_num_threads(), 1);
    }
    EXPECT_EQ(at::get_num_threads(), 1);
    std::thread([] { EXPECT_EQ(at::get_num_threads(), 3); }).join();
  }
  EXPECT_EQ(at::get_num_threads(), 3);
}

TEST(SerialOperatorsTest, HoldInAThreadThatLibTorchDoesNotKnowYet) {
  at::set_num_threads(3);
  std::thread([] {
    const SerialOperators serial;
    std::atomic<int> calls{0};
    at::parallel_for(0, 100, 1, [&](int64_t, int64_t) { ++calls; });
    EXPECT_EQ(calls, 1);
  }).join();
}

}  // namespace
}  // namespace tandem
