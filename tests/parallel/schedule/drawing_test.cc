#include "parallel/schedule/drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tandem::drawing_test {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Pointwise;

std::vector<double> Multiples(double unit, int last) {
  std::vector<double> all;
  for (int i = 0; i <= last; ++i) all.push_back(i * unit);
  return all;
}

TEST(AxisTicksTest, AreRound) {
  EXPECT_THAT(AxisTicks(2.31), Pointwise(DoubleEq(), Multiples(0.5, 4)));
  EXPECT_THAT(AxisTicks(8.08), Pointwise(DoubleEq(), Multiples(1, 8)));
  EXPECT_THAT(AxisTicks(10), Pointwise(DoubleEq(), Multiples(1, 10)));
  EXPECT_THAT(AxisTicks(11), Pointwise(DoubleEq(), Multiples(2, 5)));
  EXPECT_THAT(AxisTicks(0.021), Pointwise(DoubleEq(), Multiples(0.005, 4)));
}

TEST(AxisTicksTest, NeverMoreThanTenBehindTheFirst) {
  for (double most = 1e-9; most < 1e9; most *= 1.37) {
    const std::vector<double> ticks = AxisTicks(most);
    EXPECT_LE(ticks.size(), 11) << most;
    EXPECT_GE(ticks.size(), 4) << most;
    EXPECT_LE(ticks.back(), most * (1 + 1e-9));
  }
}

TEST(AxisTicksTest, NothingAboveZero) {
  EXPECT_THAT(AxisTicks(0), ElementsAre(0));
  EXPECT_THAT(AxisTicks(-1), ElementsAre(0));
  EXPECT_THAT(AxisTicks(std::numeric_limits<double>::quiet_NaN()),
              ElementsAre(0));
}

}  // namespace
}  // namespace tandem::drawing_test
