#include "tools/bench/measure/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/axis_ticks.h"

namespace tandem {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 480;
constexpr double kLeft = 60;
constexpr double kRight = 20;
constexpr double kTop = 40;
constexpr double kBottom = 50;
constexpr double kRow = 18;      // of the legend
constexpr double kColumn = 440;  // of the legend, which has two
constexpr const char* kColours[] = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728",
                                    "#9467bd", "#8c564b", "#e377c2", "#17becf"};

bool IsFinite(const ChartPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

std::string Text(double x, double y, const char* anchor,
                 const std::string& text) {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
      anchor, Escaped(text));
}

std::string Segment(double x1, double y1, double x2, double y2,
                    const char* colour, double width) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
      "stroke-width=\"%.1f\"/>\n",
      x1, y1, x2, y2, colour, width);
}

// From values to pixels.
class Plane {
 public:
  explicit Plane(const LineChart& chart) {
    for (const ChartLine& line : chart.lines) {
      for (const ChartPoint& point : line.points) {
        if (!IsFinite(point)) continue;
        most_x_ = std::max(most_x_, point.x);
        most_y_ = std::max(most_y_, point.y);
      }
    }
    if (most_x_ == 0) most_x_ = 1;
    if (most_y_ == 0) most_y_ = 1;
  }

  double X(double x) const {
    return kLeft + x / most_x_ * (kWidth - kLeft - kRight);
  }
  double Y(double y) const {
    return kHeight - kBottom - y / most_y_ * (kHeight - kTop - kBottom);
  }
  double most_x() const { return most_x_; }
  double most_y() const { return most_y_; }

 private:
  double most_x_ = 0;
  double most_y_ = 0;
};

std::string Axes(const Plane& plane) {
  std::string svg;
  for (const double x : AxisTicks(plane.most_x())) {
    svg += Text(plane.X(x), kHeight - kBottom + 18, "middle",
                absl::StrFormat("%.3g", x));
  }
  for (const double y : AxisTicks(plane.most_y())) {
    svg +=
        Segment(kLeft, plane.Y(y), kWidth - kRight, plane.Y(y), "#dddddd", 1);
    svg += Text(kLeft - 6, plane.Y(y) + 4, "end", absl::StrFormat("%.3g", y));
  }
  return svg;
}

std::string Line(const ChartLine& line, const Plane& plane,
                 const char* colour) {
  std::string points;
  for (const ChartPoint& point : line.points) {
    if (!IsFinite(point)) continue;
    absl::StrAppendFormat(&points, "%s%.1f,%.1f", points.empty() ? "" : " ",
                          plane.X(point.x), plane.Y(point.y));
  }
  return absl::StrFormat(
      "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" "
      "points=\"%s\"/>\n",
      colour, points);
}

}  // namespace

std::string DrawSvg(const LineChart& chart) {
  const Plane plane(chart);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
      "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, kHeight + kRow * std::ceil(chart.lines.size() / 2.0));
  svg += Text(kLeft, 20, "start", chart.title);
  svg += Axes(plane);
  svg += Text(kWidth / 2, kHeight - 12, "middle", chart.x_label);
  svg += Text(kLeft, kTop - 6, "start", chart.y_label);
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const char* colour = kColours[i % (sizeof(kColours) / sizeof(*kColours))];
    svg += Line(chart.lines[i], plane, colour);
    const double x = kLeft + static_cast<double>(i % 2) * kColumn;
    const double y = kHeight + static_cast<double>(i / 2) * kRow;
    svg += Segment(x, y, x + 20, y, colour, 3);
    svg += Text(x + 26, y + 4, "start", chart.lines[i].name);
  }
  return svg + "</svg>\n";
}

}  // namespace tandem
