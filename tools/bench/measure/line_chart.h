// Line chart as SVG.

#ifndef TANDEM_TOOLS_BENCH_MEASURE_LINE_CHART_H_
#define TANDEM_TOOLS_BENCH_MEASURE_LINE_CHART_H_

#include <string>
#include <vector>

namespace tandem {

struct ChartPoint {
  double x;
  double y;
};

struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;  // by x; none: only its name is shown
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartLine> lines;  // eight have colours of their own
};

// A picture of 960 x 480 pixels: axes from 0 to the greatest values and the
// lines; below it, 18 pixels for every two, their names in the order given.
// Text is escaped. Points that are not finite are left out.
std::string DrawSvg(const LineChart& chart);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURE_LINE_CHART_H_
