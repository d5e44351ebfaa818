// Line plot: curves over steps as a figure of an HTML page.

#ifndef TANDEM_TOOLS_REPORT_LINE_PLOT_H_
#define TANDEM_TOOLS_REPORT_LINE_PLOT_H_

#include <string>
#include <vector>

#include "tools/report/thinned_series.h"

namespace tandem {

// Colours that people who are colour-blind can tell apart: further lines have
// them again, dashed.
constexpr int kPlotColours = 7;

struct PlotLine {
  std::string name;
  const ThinnedSeries* series = nullptr;  // outlives the plot
  int colour = 0;                         // any number from 0
  bool is_dashed = false;
  // Few and far between: each point gets a dot.
  bool has_dots = false;
  // Whether a smoothed line stands before the points.
  bool is_smoothed = false;
};

struct LinePlot {
  std::string title;
  std::string unit;  // of the values; empty: none
  std::vector<PlotLine> lines;
  bool has_logarithmic_steps = false;
  bool may_be_logarithmic = false;  // its values, see ValueScale
  bool is_percent = false;          // 1 is shown as 100 %
  std::string css_class;            // of the figure, beside "plot"
};

// A <figure> in well-formed XML: the curves as inline SVG that is drawn as wide
// as there is room, and text of the same size whatever that is, with a legend
// that has each line's last value. Its look is the page's style sheet's
// (page_style.h). Names and titles are escaped. Empty where no line has a value
// to draw. At most some 30 KB a line.
std::string LinePlotFigure(const LinePlot& plot);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_LINE_PLOT_H_
