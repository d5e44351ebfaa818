// Memory fixture: what is in use on simulated devices, for tests.

#ifndef TANDEM_TESTS_CORE_SIM_MEMORY_MEMORY_FIXTURE_H_
#define TANDEM_TESTS_CORE_SIM_MEMORY_MEMORY_FIXTURE_H_

#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/device/memory_category.h"

namespace tandem {

// Bytes of one category; the others are counted nowhere else.
int64_t Used(MemoryCategory category, int device = 0);
int64_t Used(int device = 0);
int64_t Peak(int device = 0);

c10::TensorOptions On(int device, c10::ScalarType dtype = c10::kFloat);

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
  void SetUp() override;
  void TearDown() override;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_SIM_MEMORY_MEMORY_FIXTURE_H_
