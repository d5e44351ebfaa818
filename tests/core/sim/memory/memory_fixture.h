// Memory fixture: what is in use on simulated devices, for tests.

#ifndef TANDEM_TESTS_CORE_SIM_MEMORY_MEMORY_FIXTURE_H_
#define TANDEM_TESTS_CORE_SIM_MEMORY_MEMORY_FIXTURE_H_

#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/device/memory_category.h"
#include "core/sim/memory/memory.h"
#include "core/sim/sim.h"
#include "core/sim/testing.h"

namespace tandem {

// Bytes of one category; the others are counted nowhere else.
inline int64_t Used(MemoryCategory category, int device = 0) {
  return sim::DeviceMemoryStatistics(device)
      .now.by_category[static_cast<size_t>(category)];
}

inline int64_t Used(int device = 0) {
  const MemoryUse now = sim::DeviceMemoryStatistics(device).now;
  int64_t sum = 0;
  for (const int64_t bytes : now.by_category) sum += bytes;
  EXPECT_EQ(sum, now.total);
  return now.total;
}

inline int64_t Peak(int device = 0) {
  return sim::DeviceMemoryStatistics(device).peak.total;
}

inline c10::TensorOptions On(int device, c10::ScalarType dtype = c10::kFloat) {
  return c10::TensorOptions().dtype(dtype).device(SimDevice(device));
}

// What it threw; "" if nothing.
template <typename F>
std::string OutOfMemory(F&& work) {
  try {
    work();
  } catch (const c10::OutOfMemoryError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

// Synchronous: a queued operator's results lie in memory of their own.
class MemoryFixture : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(EnableSim().ok());
    ASSERT_EQ(Used(0), 0);
    ASSERT_EQ(Used(1), 0);
    sim::ResetPeak(0);
  }
  void TearDown() override {
    EXPECT_EQ(Used(0), 0);
    EXPECT_EQ(Used(1), 0);
  }
};

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_SIM_MEMORY_MEMORY_FIXTURE_H_
