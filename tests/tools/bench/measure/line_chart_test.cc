#include "tools/bench/measure/line_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace tandem::line_chart_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(LineChartTest, PutsValuesWhereTheyBelong) {
  LineChart chart;
  chart.title = "a < b & c";
  chart.x_label = "seconds";
  chart.y_label = "loss";
  chart.lines = {{"first", {{0, 2}, {4, 0}}}, {"second", {{4, 1}}}};
  const std::string svg = DrawSvg(chart);
  // The greatest x is at the right end of 60 .. 940, the greatest y at the top
  // of 40 .. 430.
  EXPECT_THAT(svg, HasSubstr("points=\"60.0,40.0 940.0,430.0\""));
  EXPECT_THAT(svg, HasSubstr("points=\"940.0,235.0\""));
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, HasSubstr(">second</text>"));
}

TEST(LineChartTest, NothingAndNothingFiniteIsDrawn) {
  LineChart chart;
  chart.lines = {
      {"empty", {}},
      {"endless", {{1, std::numeric_limits<double>::infinity()}, {2, 5}}}};
  const std::string svg = DrawSvg(chart);
  EXPECT_THAT(svg, HasSubstr("points=\"940.0,40.0\""));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

}  // namespace
}  // namespace tandem::line_chart_test
