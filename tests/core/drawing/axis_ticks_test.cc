// Round values for axes.

#include "core/drawing/axis_ticks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tandem::axis_ticks_test {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
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

std::vector<double> Rounded(const std::vector<double>& ticks) {
  std::vector<double> rounded;
  for (const double tick : ticks)
    rounded.push_back(std::round(tick * 1e6) / 1e6);
  return rounded;
}

TEST(AxisTicksTest, LieBetweenTheEnds) {
  EXPECT_THAT(Rounded(AxisTicks(0.24, 1.3, 6)),
              ElementsAre(0.4, 0.6, 0.8, 1, 1.2));
  EXPECT_THAT(Rounded(AxisTicks(-7, 7, 4)), ElementsAre(-5, 0, 5));
  EXPECT_THAT(Rounded(AxisTicks(-0.03, -0.01, 3)),
              ElementsAre(-0.03, -0.02, -0.01));
  EXPECT_THAT(AxisTicks(99990, 100010, 5),
              ElementsAre(99990, 99995, 100000, 100005, 100010));
  EXPECT_THAT(AxisTicks(25, 937, 8), ElementsAre(200, 400, 600, 800));
}

TEST(AxisTicksTest, AreAsManyAsThereIsRoomFor) {
  for (const double least : {-1e9, -3.7, 0.0, 1e-7, 12345.0}) {
    for (double range = 1e-3; range < 1e9; range *= 1.37) {
      for (const int count : {2, 3, 6, 8}) {
        const std::vector<double> ticks =
            AxisTicks(least, least + range, count);
        EXPECT_LE(ticks.size(), static_cast<size_t>(count));
        for (const double tick : ticks) {
          EXPECT_GE(tick, least - 1e-6 * range);
          EXPECT_LE(tick, least + range * (1 + 1e-6));
        }
      }
    }
  }
}

TEST(AxisTicksTest, NoneWhereThereIsNoRange) {
  EXPECT_THAT(AxisTicks(1, 1, 5), IsEmpty());
  EXPECT_THAT(AxisTicks(2, 1, 5), IsEmpty());
  EXPECT_THAT(AxisTicks(std::nan(""), 1, 5), IsEmpty());
  // Doubles have nothing between these.
  EXPECT_THAT(AxisTicks(1e17, 1e17 + 32, 5), IsEmpty());
}

TEST(LogarithmicTicksTest, ArePowersOfTenAndPartsOfThem) {
  EXPECT_THAT(Rounded(LogarithmicTicks(1, 100, 8)),
              ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(Rounded(LogarithmicTicks(1, 100, 6)), ElementsAre(1, 10, 100));
  EXPECT_THAT(Rounded(LogarithmicTicks(3, 40, 6)), ElementsAre(5, 10, 20));
  EXPECT_THAT(Rounded(LogarithmicTicks(0.01, 1000, 3)),
              ElementsAre(0.01, 1, 100));
  EXPECT_THAT(LogarithmicTicks(0, 10, 5), IsEmpty());
  EXPECT_THAT(LogarithmicTicks(-1, 10, 5), IsEmpty());
  EXPECT_THAT(LogarithmicTicks(10, 10, 5), IsEmpty());
  for (const int count : {2, 5, 8}) {
    EXPECT_LE(LogarithmicTicks(1e-150, 1e150, count).size(),
              static_cast<size_t>(count));
  }
}

}  // namespace
}  // namespace tandem::axis_ticks_test
