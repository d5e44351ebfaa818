#include "tests/core/sim/memory/memory_fixture.h"

#include "core/sim/memory/memory.h"
#include "core/sim/sim.h"
#include "core/sim/testing.h"

namespace tandem {

using sim::BooksOf;

int64_t Used(MemoryCategory category, int device) {
  return BooksOf(device).now.by_category[static_cast<size_t>(category)];
}

int64_t Used(int device) {
  const MemoryUse now = BooksOf(device).now;
  int64_t sum = 0;
  for (const int64_t bytes : now.by_category) sum += bytes;
  EXPECT_EQ(sum, now.total);
  return now.total;
}

int64_t Peak(int device) { return BooksOf(device).peak.total; }

c10::TensorOptions On(int device, c10::ScalarType dtype) {
  return c10::TensorOptions().dtype(dtype).device(SimDevice(device));
}

void MemoryFixture::SetUp() {
  ASSERT_TRUE(EnableSim().ok());
  ASSERT_EQ(Used(0), 0);
  ASSERT_EQ(Used(1), 0);
  sim::ResetPeak(0);
}

void MemoryFixture::TearDown() {
  EXPECT_EQ(Used(0), 0);
  EXPECT_EQ(Used(1), 0);
}

}  // namespace tandem
