// Axes, paths and figures of plots, and how quantities are shown.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/tools/report/well_formed.h"
#include "tools/report/line_plot.h"
#include "tools/report/plot_path.h"
#include "tools/report/quantities.h"

namespace tandem::plots_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(QuantitiesTest, HaveThreeOrFourDigits) {
  EXPECT_EQ(ShownNumber(0.34693), "0.3469");
  EXPECT_EQ(ShownNumber(8554.4), "8554");
  EXPECT_EQ(ShownNumber(12345), "12.35 k");
  EXPECT_EQ(ShownNumber(-2.5e9), "-2.5 G");
  EXPECT_EQ(ShownNumber(0.00001), "1e-5");
  EXPECT_EQ(ShownNumber(1e25), "1e+25");
  EXPECT_EQ(ShownNumber(std::nan("")), "not finite");
  EXPECT_EQ(ShownPercent(0.88142), "88.14 %");
  EXPECT_EQ(ShownCount(937), "937");
  EXPECT_EQ(ShownCount(1234567), "1\u202f234\u202f567");
  EXPECT_EQ(ShownMebibytes(212.34), "212.3 MiB");
  EXPECT_EQ(ShownMebibytes(1536), "1.5 GiB");
  EXPECT_EQ(ShownMebibytes(1e300), "1e+300");
}

TEST(QuantitiesTest, TimesHaveOneUnitOrTwo) {
  EXPECT_EQ(ShownSeconds(0.00754), "7.54 ms");
  EXPECT_EQ(ShownSeconds(12.34), "12.3 s");
  EXPECT_EQ(ShownSeconds(245), "4 min 5 s");
  EXPECT_EQ(ShownSeconds(3600 * 2 + 60 * 31), "2 h 31 min");
  EXPECT_EQ(ShownSeconds(86400 * 3 + 3600 * 4), "3 d 4 h");
  EXPECT_EQ(ShownSeconds(-1), "-1");
  EXPECT_EQ(ShownDate(0), "");
  EXPECT_EQ(ShownDate(951782400 + 60), "2000-02-29 00:01 UTC");
  EXPECT_EQ(ShownDate(1e300), "");
}

TEST(QuantitiesTest, TicksHaveAllTheirDigits) {
  EXPECT_EQ(TickText(0.1 + 0.2), "0.3");
  EXPECT_EQ(TickText(200000), "200k");
  EXPECT_EQ(TickText(1234500), "1.2345M");
  EXPECT_EQ(TickText(-1500), "-1500");
  EXPECT_EQ(TickText(5e-5), "5e-5");
  EXPECT_EQ(TickText(0), "0");
}

TEST(PlotScaleTest, BeginsAt0WhereThatIsNear) {
  EXPECT_EQ(ValueScale(0.3, 2.3, true).least, 0);
  EXPECT_NEAR(ValueScale(0.3, 2.3, true).most, 2.38, 1e-9);
  EXPECT_NEAR(ValueScale(90, 100, true).least, 89.6, 1e-9);
  EXPECT_NEAR(ValueScale(-100, -90, true).most, -89.6, 1e-9);
  EXPECT_EQ(ValueScale(-1, -0.1, true).most, 0);
  EXPECT_EQ(StepScale(25, 937, false).least, 0);
  EXPECT_EQ(StepScale(500, 937, false).least, 500);
}

TEST(PlotScaleTest, HasRoomForOneValue) {
  EXPECT_EQ(ValueScale(0.05, 0.05, false).PartAt(0.05), 0.5);
  EXPECT_EQ(ValueScale(0, 0, true).PartAt(0), 0.5);
  EXPECT_EQ(ValueScale(-3, -3, true).PartAt(-3), 0.5);
  EXPECT_EQ(StepScale(7, 7, true).PartAt(7), 0);
}

TEST(PlotScaleTest, IsLogarithmicWhereValuesSpanThreeDecades) {
  EXPECT_FALSE(ValueScale(0.01, 9.99, true).is_logarithmic);
  EXPECT_FALSE(ValueScale(0.001, 10, false).is_logarithmic);
  EXPECT_FALSE(ValueScale(0, 10000, true).is_logarithmic);
  const PlotScale scale = ValueScale(0.01, 100, true);
  EXPECT_TRUE(scale.is_logarithmic);
  EXPECT_NEAR(scale.PartAt(1), 0.5, 1e-9);
  EXPECT_FALSE(scale.Has(0));
  EXPECT_FALSE(scale.Has(-1));
}

std::vector<SeriesBucket> Buckets(const std::vector<SeriesPoint>& points) {
  ThinnedSeries series;
  for (const SeriesPoint& point : points) series.Add(point.x, point.y);
  return series.buckets();
}

const PlotScale kTen = {0, 10, false};

TEST(PlotPathTest, GoesFromPointToPointAndStopsAtGaps) {
  const double nan = std::nan("");
  EXPECT_EQ(ExtremesPath(Buckets({{0, 0},
                                  {1, 5},
                                  {2, 10},
                                  {3, nan},
                                  {4, 2.5},
                                  {5, nan},
                                  {9, 0},
                                  {10, 1}}),
                         kTen, kTen, 1000),
            "M0 1000L200 500 400 0M800 750h0M1800 1000L2000 900");
  EXPECT_EQ(ExtremesPath({}, kTen, kTen, 1000), "");
  EXPECT_EQ(ExtremesPath(Buckets({{1, nan}}), kTen, kTen, 1000), "");
}

// Columns of one unit each; in each the least and the greatest, as they come.
TEST(PlotPathTest, HasTheExtremesOfEachColumn) {
  EXPECT_EQ(ExtremesPath(Buckets({{0, 5},
                                  {0.1, 9},
                                  {0.2, 6},
                                  {0.3, 1},
                                  {0.4, 3},
                                  {1, 2},
                                  {1.5, 2}}),
                         kTen, kTen, 10),
            "M20 100L60 900 200 800");
}

TEST(PlotPathTest, IsAsLongAsThereAreColumns) {
  ThinnedSeries series;
  for (int x = 0; x < 100000; ++x) series.Add(x, x % 2 == 0 ? 1 : 9);
  const std::string path =
      ExtremesPath(series.buckets(), {0, 100000, false}, kTen, 200);
  int points = 0;
  for (const char each : path) points += each == ' ' ? 1 : 0;
  // Two of each column, with a space in each and one before all but the first
  // two.
  EXPECT_EQ(points, 2 * 200 + (2 * 200 - 2));
}

TEST(PlotPathTest, ALogarithmLeavesOutWhatHasNone) {
  const PlotScale log = {1, 100, true};
  EXPECT_EQ(ExtremesPath(Buckets({{0, 1}, {1, 1}, {10, 10}, {100, 100}}), log,
                         log, 1000),
            "M0 1000L1000 500 2000 0");
}

TEST(PlotPathTest, SmoothCurvesHaveOnePointAColumn) {
  std::vector<SeriesPoint> points;
  for (int i = 0; i <= 100; ++i) points.push_back({i / 10.0, 5});
  EXPECT_EQ(SmoothPath(points, kTen, kTen, 2), "M0 500L1000 500 2000 500");
  points[30].y = std::nan("");
  EXPECT_EQ(SmoothPath(points, kTen, kTen, 2),
            "M0 500h0M620 500L1000 500 2000 500");
}

TEST(PlotPathTest, DotsAreLinesOfNoLength) {
  EXPECT_EQ(DotsPath(Buckets({{0, 10}, {10, 0}}), kTen, kTen),
            "M0 0h0M2000 1000h0");
}

TEST(LinePlotTest, IsAFigureWithALegendAndRoundTicks) {
  ThinnedSeries one;
  ThinnedSeries other;
  for (int x = 1; x <= 40; ++x) one.Add(25 * x, 100.0 / x);
  other.Add(500, 3);
  other.Add(1000, std::nan(""));
  LinePlot plot;
  plot.title = "Loss & more";
  plot.unit = "nat";
  plot.lines.push_back({"a <b>", &one, 0});
  plot.lines.push_back({"test", &other, 9, false, true});
  const std::string figure = LinePlotFigure(plot);
  EXPECT_EQ(MarkupError(figure), "") << figure;
  EXPECT_THAT(figure, AllOf(HasSubstr("<strong>Loss &amp; more</strong>"),
                            HasSubstr("<bdi>a &lt;b&gt;</bdi> <b>2.5</b>"),
                            HasSubstr("<bdi>test</bdi> <b>3</b>"),
                            HasSubstr("<i class=\"c2 dashed\">"),
                            HasSubstr(">200</span>"), HasSubstr(">1000</span>"),
                            HasSubstr("1 point is NaN or infinite")));
  EXPECT_THAT(figure, HasSubstr("aria-label=\"Loss &amp; more over steps: a "
                                "&lt;b&gt; ends at 2.5; test ends at 3\""));
  EXPECT_THAT(figure, Not(HasSubstr("class=\"points")));
}

TEST(LinePlotTest, SmoothsManyPointsAndShowsPercent) {
  ThinnedSeries series;
  for (int x = 1; x <= 100; ++x) series.Add(x, 0.5 + (x % 2) * 0.1);
  LinePlot plot;
  plot.title = "Accuracy";
  plot.is_percent = true;
  plot.lines.push_back({"", &series, 0, false, false, true});
  const std::string figure = LinePlotFigure(plot);
  EXPECT_EQ(MarkupError(figure), "") << figure;
  EXPECT_THAT(figure,
              AllOf(HasSubstr("class=\"points c0\""),
                    HasSubstr("class=\"line c0\""), HasSubstr(">54 %</span>"),
                    HasSubstr("linear percent\""), HasSubstr("<b>50 %</b>")));
}

TEST(LinePlotTest, IsNothingWithoutAValue) {
  ThinnedSeries series;
  LinePlot plot;
  EXPECT_EQ(LinePlotFigure(plot), "");
  series.Add(0, std::nan(""));
  plot.lines.push_back({"", &series, 0});
  EXPECT_EQ(LinePlotFigure(plot), "");
  series.Add(0, 1);
  EXPECT_NE(LinePlotFigure(plot), "");
  plot.has_logarithmic_steps = true;
  EXPECT_EQ(LinePlotFigure(plot), "");
}

}  // namespace
}  // namespace tandem::plots_test
