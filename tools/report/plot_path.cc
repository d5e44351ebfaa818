#include "tools/report/plot_path.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/drawing/axis_ticks.h"

namespace tandem {
namespace {

// 0 is near to what is this part of the greatest value.
constexpr double kNearZero = 0.35;
// The room between values and the ends of their axis.
constexpr double kRoom = 0.04;
// Between the ends of an axis that is logarithmic.
constexpr double kDecades = 1000;

// Whole units of the image.
int64_t Across(const PlotScale& x, double value) {
  return std::lround(x.PartAt(value) * kPlotWidth);
}
int64_t Down(const PlotScale& y, double value) {
  const double part = std::clamp(y.PartAt(value), -1.0, 2.0);
  return std::lround((1 - part) * kPlotHeight);
}

int64_t ColumnOf(const PlotScale& x, double value, int columns) {
  return static_cast<int64_t>(std::floor(x.PartAt(value) * columns));
}

// Writes points that follow each other as lines.
class PathWriter {
 public:
  PathWriter(const PlotScale& x, const PlotScale& y) : x_(x), y_(y) {}

  void LineTo(const SeriesPoint& point) {
    const int64_t across = Across(x_, point.x);
    const int64_t down = Down(y_, point.y);
    absl::StrAppend(&path_,
                    length_ == 0   ? "M"
                    : length_ == 1 ? "L"
                                   : " ",
                    across, " ", down);
    ++length_;
  }

  void EndLine() {
    if (length_ == 1) absl::StrAppend(&path_, "h0");
    length_ = 0;
  }

  std::string Take() {
    EndLine();
    return std::move(path_);
  }

 private:
  const PlotScale& x_;
  const PlotScale& y_;
  int64_t length_ = 0;  // points of the line that is being written
  std::string path_;
};

// The extremes of one column's points.
class Column {
 public:
  void Add(const SeriesPoint& point) {
    if (is_empty_ || point.y < least_.y) least_ = point;
    if (is_empty_ || point.y > greatest_.y) greatest_ = point;
    is_empty_ = false;
  }

  void MoveTo(PathWriter* path) {
    if (is_empty_) return;
    const bool falls = greatest_.x < least_.x;
    path->LineTo(falls ? greatest_ : least_);
    if (!(least_ == greatest_)) path->LineTo(falls ? least_ : greatest_);
    is_empty_ = true;
  }

 private:
  bool is_empty_ = true;
  SeriesPoint least_;
  SeriesPoint greatest_;
};

}  // namespace

double PlotScale::PartAt(double value) const {
  if (!is_logarithmic) return (value - least) / (most - least);
  return std::log(value / least) / std::log(most / least);
}

bool PlotScale::Has(double value) const {
  return std::isfinite(value) && (!is_logarithmic || value > 0);
}

std::vector<double> PlotScale::Ticks(int count) const {
  return is_logarithmic ? LogarithmicTicks(least, most, count)
                        : AxisTicks(least, most, count);
}

PlotScale StepScale(double least, double most, bool is_logarithmic) {
  if (is_logarithmic) {
    least = std::max(least, 1.0);
    return {least, most > least ? most : 2 * least, true};
  }
  if (least >= 0 && least <= kNearZero * most) least = 0;
  if (most > least) return {least, most, false};
  return {least - 1, most + 1, false};
}

PlotScale ValueScale(double least, double most, bool may_be_logarithmic) {
  if (may_be_logarithmic && least > 0 && most >= kDecades * least) {
    const double room = std::pow(most / least, kRoom);
    return {least / room, most * room, true};
  }
  if (most == least) {
    if (most == 0) return {-1, 1, false};
    return {std::min(0.0, 2 * least), std::max(0.0, 2 * most), false};
  }
  const double room = kRoom * (most - least);
  const bool from_zero = least >= 0 && least <= kNearZero * most;
  const bool to_zero = most <= 0 && most >= kNearZero * least;
  return {from_zero ? 0 : least - room, to_zero ? 0 : most + room, false};
}

std::string ExtremesPath(const std::vector<SeriesBucket>& buckets,
                         const PlotScale& x, const PlotScale& y, int columns) {
  PathWriter path(x, y);
  Column column;
  int64_t at = -1;
  for (const SeriesBucket& bucket : buckets) {
    if (bucket.count == 0) {
      column.MoveTo(&path);
      path.EndLine();
    }
    for (const SeriesPoint& point : bucket.extremes()) {
      if (!x.Has(point.x) || !y.Has(point.y)) continue;
      const int64_t next = ColumnOf(x, point.x, columns);
      if (next != at) column.MoveTo(&path);
      at = next;
      column.Add(point);
    }
  }
  column.MoveTo(&path);
  return path.Take();
}

std::string SmoothPath(const std::vector<SeriesPoint>& points,
                       const PlotScale& x, const PlotScale& y, int columns) {
  PathWriter path(x, y);
  int64_t at = -1;
  for (size_t i = 0; i < points.size(); ++i) {
    const SeriesPoint& point = points[i];
    if (!x.Has(point.x) || !y.Has(point.y)) {
      path.EndLine();
      at = -1;
      continue;
    }
    const int64_t next = ColumnOf(x, point.x, columns);
    if (next != at || i + 1 == points.size()) path.LineTo(point);
    at = next;
  }
  return path.Take();
}

std::string DotsPath(const std::vector<SeriesBucket>& buckets,
                     const PlotScale& x, const PlotScale& y) {
  PathWriter path(x, y);
  for (const SeriesBucket& bucket : buckets) {
    const SeriesPoint point = {bucket.last_x, bucket.mean};
    if (bucket.count == 0 || !x.Has(point.x) || !y.Has(point.y)) continue;
    path.LineTo(point);
    path.EndLine();
  }
  return path.Take();
}

}  // namespace tandem
