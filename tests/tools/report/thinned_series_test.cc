// Curves that are thinned while they come.

#include "tools/report/thinned_series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tandem::thinned_series_test {
namespace {

using testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// y = (7 x) modulo 101: every value once in 101 steps, up and down.
double Zigzag(int64_t x) { return static_cast<double>(7 * x % 101); }

ThinnedSeries Zigzags(int64_t count, size_t capacity) {
  ThinnedSeries series(capacity);
  for (int64_t x = 0; x < count; ++x) {
    series.Add(static_cast<double>(x), Zigzag(x));
  }
  return series;
}

TEST(ThinnedSeriesTest, KeepsEveryPointAsLongAsThereIsRoom) {
  for (const int64_t count : {0, 1, 7, 16}) {
    const ThinnedSeries series = Zigzags(count, 16);
    ASSERT_EQ(series.buckets().size(), static_cast<size_t>(count));
    EXPECT_EQ(series.stride(), 1);
    EXPECT_EQ(series.last().has_value(), count > 0);
    for (int64_t x = 0; x < count; ++x) {
      const SeriesBucket& bucket = series.buckets()[static_cast<size_t>(x)];
      EXPECT_EQ(
          bucket.extremes(),
          (std::vector<SeriesPoint>{{static_cast<double>(x), Zigzag(x)}}));
      EXPECT_EQ(bucket.mean, Zigzag(x));
    }
  }
}

// 16 buckets of 64 = 2^6 points hold 1009; each has the extremes and the mean
// of its own points, by arithmetic.
TEST(ThinnedSeriesTest, JoinsNeighboursByTheirExtremesAndMeans) {
  const int64_t count = 1009;
  const ThinnedSeries series = Zigzags(count, 16);
  EXPECT_EQ(series.stride(), 64);
  ASSERT_EQ(series.buckets().size(), 16u);
  for (int64_t b = 0; b < 16; ++b) {
    const SeriesBucket& bucket = series.buckets()[static_cast<size_t>(b)];
    const int64_t first = 64 * b;
    const int64_t last = std::min<int64_t>(first + 63, count - 1);
    EXPECT_EQ(bucket.first_x, first);
    EXPECT_EQ(bucket.last_x, last);
    EXPECT_EQ(bucket.count, last - first + 1);
    double sum = 0;
    SeriesPoint least = {0, 1e9};
    SeriesPoint greatest = {0, -1};
    for (int64_t x = first; x <= last; ++x) {
      const SeriesPoint point = {static_cast<double>(x), Zigzag(x)};
      sum += point.y;
      if (point.y < least.y) least = point;
      if (point.y > greatest.y) greatest = point;
    }
    EXPECT_EQ(bucket.least, least);
    EXPECT_EQ(bucket.greatest, greatest);
    EXPECT_NEAR(bucket.mean, sum / static_cast<double>(bucket.count), 1e-12);
  }
  EXPECT_EQ(series.last(), (SeriesPoint{1008, Zigzag(1008)}));
}

TEST(ThinnedSeriesTest, AMillionPointsTakeNoMoreThanTheCapacity) {
  ThinnedSeries series;
  for (int64_t x = 0; x < 1000000; ++x) {
    series.Add(static_cast<double>(x), x == 123457 ? 5.0 : 1.0);
  }
  EXPECT_LE(series.buckets().size(), ThinnedSeries::kUsualCapacity);
  EXPECT_GE(series.buckets().size(), ThinnedSeries::kUsualCapacity / 2 - 1);
  int64_t all = 0;
  std::vector<SeriesPoint> fives;
  for (const SeriesBucket& bucket : series.buckets()) {
    all += bucket.count;
    if (bucket.greatest.y == 5) fives.push_back(bucket.greatest);
  }
  EXPECT_EQ(all, 1000000);
  EXPECT_THAT(fives, ElementsAre(SeriesPoint{123457, 5}));
}

TEST(ThinnedSeriesTest, WhatIsNotFiniteIsAGap) {
  ThinnedSeries series(8);
  const std::vector<double> values = {1, kNan, 2, kInfinity, 1e200, 3};
  for (size_t i = 0; i < values.size(); ++i) {
    series.Add(static_cast<double>(i), values[i]);
  }
  EXPECT_EQ(series.gaps(), 3);
  EXPECT_EQ(series.buckets()[1].count, 0);
  EXPECT_TRUE(series.buckets()[1].extremes().empty());
  EXPECT_EQ(series.last(), (SeriesPoint{5, 3}));
  // A bucket that has both has the value.
  for (int x = 6; x < 9; ++x) series.Add(x, 4);
  EXPECT_EQ(series.buckets()[0].count, 1);
  EXPECT_EQ(series.buckets()[0].gaps, 1);
  EXPECT_EQ(series.buckets()[0].mean, 1);
  EXPECT_EQ(series.buckets()[1].mean, 2);
  EXPECT_EQ(series.gaps(), 3);
}

TEST(ThinnedSeriesTest, TakesBackWhatLiesBehindAStep) {
  ThinnedSeries series = Zigzags(10, 16);
  series.DropAfter(6);
  EXPECT_EQ(series.buckets().size(), 7u);
  EXPECT_EQ(series.last(), (SeriesPoint{6, Zigzag(6)}));
  series.DropAfter(100);
  EXPECT_EQ(series.buckets().size(), 7u);
  series.DropAfter(-1);
  EXPECT_TRUE(series.empty());
  EXPECT_FALSE(series.last().has_value());
}

TEST(ThinnedSeriesTest, OfABucketThatIsCutTheExtremesBeforeStay) {
  ThinnedSeries series(2);
  for (const auto& [x, y] : std::vector<SeriesPoint>{
           {1, 5}, {2, 9}, {3, 7}, {4, 1}, {5, 6}, {6, 8}}) {
    series.Add(x, y);
  }
  // Points 1 to 4 and 5 to 6; of the first, 9 at 2 and 1 at 4.
  ASSERT_EQ(series.buckets().size(), 2u);
  series.DropAfter(3);
  ASSERT_EQ(series.buckets().size(), 1u);
  EXPECT_THAT(series.buckets()[0].extremes(), ElementsAre(SeriesPoint{2, 9}));
  EXPECT_EQ(series.last(), (SeriesPoint{2, 9}));
  series.DropAfter(1);
  EXPECT_EQ(series.buckets()[0].count, 0);
  EXPECT_EQ(series.gaps(), 1);
}

TEST(SmoothedMeansTest, KeepALineAndAreNotMadeOfFewPoints) {
  ThinnedSeries series;
  for (int x = 0; x < 200; ++x) {
    EXPECT_EQ(SmoothedMeans(series).size(),
              series.buckets().size() < kFewestSmoothed
                  ? 0
                  : series.buckets().size());
    series.Add(x, 3);
  }
  for (const SeriesPoint& point : SmoothedMeans(series)) {
    EXPECT_NEAR(point.y, 3, 1e-12);
  }
}

// Weights fall to both sides alike: what is odd about a point stays so, and a
// gap is no value.
TEST(SmoothedMeansTest, HaveNoLag) {
  ThinnedSeries series;
  for (int x = -100; x <= 100; ++x) series.Add(x, x == 50 ? kNan : x);
  const std::vector<SeriesPoint> points = SmoothedMeans(series);
  ASSERT_EQ(points.size(), 201u);
  EXPECT_NEAR(points[100].y, 0, 0.05);
  EXPECT_TRUE(std::isnan(points[150].y));
  EXPECT_GT(points[0].y, -100);
  EXPECT_LT(points[200].y, 100);
}

TEST(MedianMeanTest, CountsPoints) {
  ThinnedSeries series(2);
  EXPECT_FALSE(MedianMean(series).has_value());
  series.Add(1, kNan);
  EXPECT_FALSE(MedianMean(series).has_value());
  for (const double y : {4.0, 4.0, 4.0, 1.0}) series.Add(2, y);
  // A bucket of three points, one of one.
  EXPECT_EQ(MedianMean(series), 4);
}

}  // namespace
}  // namespace tandem::thinned_series_test
