// Plot path: a curve in the coordinates of an SVG image.

#ifndef TANDEM_TOOLS_REPORT_PLOT_PATH_H_
#define TANDEM_TOOLS_REPORT_PLOT_PATH_H_

#include <string>
#include <vector>

#include "tools/report/thinned_series.h"

namespace tandem {

// Plots' images have this many units, whatever they measure on a screen.
constexpr int kPlotWidth = 2000;
constexpr int kPlotHeight = 1000;

// An axis: from values to parts of its length.
struct PlotScale {
  double least = 0;
  double most = 1;
  bool is_logarithmic = false;

  // 0 at `least`, 1 at `most`.
  double PartAt(double value) const;
  // Whether it has a place for the value.
  bool Has(double value) const;
  // At most so many.
  std::vector<double> Ticks(int count) const;
};

// The scale of steps from `least` to `most`: from 0 if that is near, and with
// some room where both are the same.
PlotScale StepScale(double least, double most, bool is_logarithmic);

// The scale of values from `least` to `most`, with room at its ends; from 0
// where that is near. Logarithmic, if it may be, where all are above 0 and the
// greatest is a thousand times the least.
PlotScale ValueScale(double least, double most, bool may_be_logarithmic);

// The attribute "d" of a <path>. Of the points that lie in one of `columns`
// columns of the image it has the least and the greatest, in the order in which
// they come; gaps end a line, and the next point begins another. A point by
// itself is a line of no length, which a round cap shows as a dot. Empty: there
// is nothing to draw.
std::string ExtremesPath(const std::vector<SeriesBucket>& buckets,
                         const PlotScale& x, const PlotScale& y, int columns);

// The same of a smooth curve's points, of which NaNs are gaps: the first one in
// each column, and the last of all.
std::string SmoothPath(const std::vector<SeriesPoint>& points,
                       const PlotScale& x, const PlotScale& y, int columns);

// A dot at each bucket's mean.
std::string DotsPath(const std::vector<SeriesBucket>& buckets,
                     const PlotScale& x, const PlotScale& y);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_PLOT_PATH_H_
