#include "tools/report/line_plot.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/drawing/markup.h"
#include "tools/report/plot_path.h"
#include "tools/report/quantities.h"

namespace tandem {
namespace {

constexpr int kMostStepTicks = 8;
constexpr int kMostValueTicks = 6;
// Columns of the image, for one line; more lines share them.
constexpr int kMostColumns = 1000;
constexpr int kFewestColumns = 200;
// More are no dots any more.
constexpr size_t kMostDots = 60;

// What a plot's lines span.
struct Span {
  double least_x = std::numeric_limits<double>::infinity();
  double most_x = -std::numeric_limits<double>::infinity();
  double least_y = std::numeric_limits<double>::infinity();
  double most_y = -std::numeric_limits<double>::infinity();

  bool is_empty() const { return !(least_x <= most_x && least_y <= most_y); }
};

Span SpanOf(const LinePlot& plot) {
  Span span;
  for (const PlotLine& line : plot.lines) {
    for (const SeriesBucket& bucket : line.series->buckets()) {
      for (const SeriesPoint& point : bucket.extremes()) {
        if (plot.has_logarithmic_steps && point.x < 1) continue;
        span.least_x = std::min(span.least_x, point.x);
        span.most_x = std::max(span.most_x, point.x);
        span.least_y = std::min(span.least_y, point.y);
        span.most_y = std::max(span.most_y, point.y);
      }
    }
  }
  return span;
}

// "c3", or "c3 dashed".
std::string ColourClass(const PlotLine& line) {
  const bool comes_again = (line.colour / kPlotColours) % 2 == 1;
  return absl::StrCat("c", line.colour % kPlotColours,
                      line.is_dashed != comes_again ? " dashed" : "");
}

std::string Path(const std::string& css_class, const std::string& path,
                 const std::string& more = "") {
  if (path.empty()) return "";
  return absl::StrCat("<path class=\"", css_class, "\"", more, " d=\"", path,
                      "\"/>\n");
}

// `number` is the line's among those of the legend.
std::string LinePaths(const PlotLine& line, size_t number, const PlotScale& x,
                      const PlotScale& y, int columns) {
  const std::vector<SeriesBucket>& buckets = line.series->buckets();
  const std::string colour = ColourClass(line);
  const std::string all = ExtremesPath(buckets, x, y, columns);
  std::vector<SeriesPoint> smoothed;
  if (line.is_smoothed) smoothed = SmoothedMeans(*line.series);
  std::string paths =
      smoothed.empty() ? "" : Path(absl::StrCat("points ", colour), all);
  paths += Path(absl::StrCat("line ", colour),
                smoothed.empty() ? all : SmoothPath(smoothed, x, y, columns),
                absl::StrCat(" data-line=\"", number, "\""));
  if (line.has_dots && buckets.size() <= kMostDots) {
    paths += Path(absl::StrCat("dots ", colour), DotsPath(buckets, x, y));
  }
  return paths;
}

// Lines across the image at the ticks.
std::string Grid(const std::vector<double>& ticks, const PlotScale& y) {
  std::string path;
  for (const double tick : ticks) {
    absl::StrAppendFormat(&path, "M0 %.0fH%d",
                          (1 - y.PartAt(tick)) * kPlotHeight, kPlotWidth);
  }
  return Path("grid", path);
}

// Every second of many can be left out where there is little room.
std::string TickLabels(const char* css_class, const char* side,
                       const std::vector<double>& ticks, const PlotScale& scale,
                       bool is_percent) {
  std::string labels = absl::StrCat("<div class=\"", css_class, "\">");
  for (size_t i = 0; i < ticks.size(); ++i) {
    absl::StrAppendFormat(
        &labels, "<span%s style=\"%s:%.2f%%\">%s</span>",
        i % 2 == 1 ? " class=\"odd\"" : "", side, 100 * scale.PartAt(ticks[i]),
        is_percent ? TickText(100 * ticks[i]) + " %" : TickText(ticks[i]));
  }
  return labels + "</div>\n";
}

std::string LastValue(const LinePlot& plot, const PlotLine& line) {
  const std::optional<SeriesPoint> last = line.series->last();
  if (!last) return "";
  return plot.is_percent ? ShownPercent(last->y) : ShownNumber(last->y);
}

std::string Legend(const LinePlot& plot) {
  std::string legend = "<span class=\"legend\">";
  for (const PlotLine& line : plot.lines) {
    absl::StrAppend(&legend, "<span class=\"key\"><i class=\"",
                    ColourClass(line), "\"></i><bdi>", EscapedMarkup(line.name),
                    "</bdi> <b>", EscapedMarkup(LastValue(plot, line)),
                    "</b></span> ");
  }
  return legend + "</span>";
}

// What a reader who sees no image is told.
std::string Description(const LinePlot& plot) {
  std::string text = absl::StrCat(plot.title, " over steps:");
  for (const PlotLine& line : plot.lines) {
    absl::StrAppend(&text, " ", line.name, " ends at ", LastValue(plot, line),
                    ";");
  }
  text.pop_back();
  return text;
}

// "0 937 linear", for the page's script.
std::string ScaleText(const PlotScale& scale, bool is_percent) {
  return absl::StrFormat("%.10g %.10g %s%s", scale.least, scale.most,
                         scale.is_logarithmic ? "log" : "linear",
                         is_percent ? " percent" : "");
}

std::string GapNote(const LinePlot& plot) {
  int64_t gaps = 0;
  for (const PlotLine& line : plot.lines) gaps += line.series->gaps();
  if (gaps == 0) return "";
  return absl::StrFormat(
      "<p class=\"note\">%d point%s NaN or infinite: a gap in the line, where "
      "there is room for one.</p>\n",
      gaps, gaps == 1 ? " is" : "s are");
}

}  // namespace

std::string LinePlotFigure(const LinePlot& plot) {
  const Span span = SpanOf(plot);
  if (span.is_empty()) return "";
  const PlotScale x =
      StepScale(span.least_x, span.most_x, plot.has_logarithmic_steps);
  const PlotScale y =
      ValueScale(span.least_y, span.most_y, plot.may_be_logarithmic);
  const std::vector<double> across = x.Ticks(kMostStepTicks);
  const std::vector<double> up = y.Ticks(kMostValueTicks);
  const int columns =
      std::max(kFewestColumns,
               kMostColumns / static_cast<int>((plot.lines.size() + 1) / 2));
  std::string lines = Grid(up, y);
  for (size_t i = 0; i < plot.lines.size(); ++i) {
    lines += LinePaths(plot.lines[i], i, x, y, columns);
  }
  return absl::StrCat(
      "<figure class=\"plot ", plot.css_class, "\">\n<figcaption><strong>",
      EscapedMarkup(plot.title), "</strong>",
      plot.unit.empty() ? ""
                        : absl::StrCat(" <span class=\"unit\">",
                                       EscapedMarkup(plot.unit), "</span>"),
      " ", Legend(plot), "</figcaption>\n<div class=\"frame\">\n",
      TickLabels("values", "bottom", up, y, plot.is_percent),
      "<div class=\"area\" data-x=\"", ScaleText(x, false), "\" data-y=\"",
      ScaleText(y, plot.is_percent), "\">",
      absl::StrFormat("<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
                      "role=\"img\" aria-label=\"%s\">\n",
                      kPlotWidth, kPlotHeight,
                      EscapedMarkup(Description(plot))),
      lines, "</svg></div>\n", "<div class=\"axis\">step</div>\n",
      TickLabels("steps", "left", across, x, false), "</div>\n", GapNote(plot),
      "</figure>\n");
}

}  // namespace tandem
