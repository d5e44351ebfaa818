#include "core/base/round_up.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace tandem::round_up_test {
namespace {

TEST(RoundUp, GivesTheLeastMultiple) {
  EXPECT_EQ(RoundUp(0, 64), 0);
  EXPECT_EQ(RoundUp(1, 64), 64);
  EXPECT_EQ(RoundUp(64, 64), 64);
  EXPECT_EQ(RoundUp(65, 64), 128);
  EXPECT_EQ(RoundUp(7, 3), 9);
  EXPECT_EQ(RoundUp(7, 1), 7);
  EXPECT_EQ(RoundUp(size_t{1} << 40, size_t{4096}), size_t{1} << 40);
  static_assert(RoundUp<int64_t>(5, 4) == 8, "in constants, too");
}

}  // namespace
}  // namespace tandem::round_up_test
