#include "tools/bench/measure/median.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::median_test {
namespace {

TEST(Median, IsTheMiddleOne) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({4, 1, 100, 2}), 3);
}

TEST(Median, OfNothingIsZeroWhereThatIsAsked) {
  EXPECT_EQ(MedianOrZero({}), 0);
  EXPECT_EQ(MedianOrZero({1, 2}), 1.5);
}

TEST(RatioOf, ComparesMediansAndPairs) {
  const Ratio ratio = RatioOf({10, 30, 20}, {10, 10, 5});
  EXPECT_EQ(ratio.ratio, 2);  // 20 / 10
  EXPECT_EQ(ratio.min, 1);
  EXPECT_EQ(ratio.max, 4);
}

TEST(RatioOf, IsGreaterThanOneWhereOursIsFaster) {
  EXPECT_GT(RatioOf({2}, {1}).ratio, 1);
}

}  // namespace
}  // namespace tandem::median_test
