// Thinned series: a curve of any number of points in bounded memory, whose
// extremes are all kept (min/max decimation, in powers of two as points come).

#ifndef TANDEM_TOOLS_REPORT_THINNED_SERIES_H_
#define TANDEM_TOOLS_REPORT_THINNED_SERIES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tandem {

struct SeriesPoint {
  double x = 0;
  double y = 0;

  bool operator==(const SeriesPoint& other) const = default;
};

// Neighbouring points as one. Without values (`count` 0) it is a gap.
struct SeriesBucket {
  double first_x = 0;
  double last_x = 0;
  int64_t count = 0;  // points that have a value
  int64_t gaps = 0;   // points that have none
  // The points with a value.
  SeriesPoint least;
  SeriesPoint greatest;
  double mean = 0;

  // The point, or both extremes in the order of x.
  std::vector<SeriesPoint> extremes() const;
};

// Up to its capacity every point is a bucket of its own; then neighbours are
// joined two by two, and so on each time. Not thread-safe.
class ThinnedSeries {
 public:
  static constexpr size_t kUsualCapacity = 2048;
  // Values beyond this in magnitude count as none: no axis has room for them.
  static constexpr double kMostMagnitude = 1e150;

  // `capacity`: buckets at most, an even number.
  explicit ThinnedSeries(size_t capacity = kUsualCapacity);

  // A point at `x`, which is at least that of the one before. A `y` that is not
  // finite is a gap.
  void Add(double x, double y);

  // Takes back the points behind `x`, as a job does that goes on from an
  // earlier step. A bucket that begins before and ends behind keeps those of
  // its extremes that lie before, and their mean.
  void DropAfter(double x);

  const std::vector<SeriesBucket>& buckets() const { return buckets_; }
  bool empty() const { return buckets_.empty(); }
  // How many points a full bucket has: 1 as long as nothing was joined.
  int64_t stride() const { return stride_; }
  // The number of points without a value.
  int64_t gaps() const;
  // The last point with a value; none after DropAfter until the next one where
  // the bucket that holds it was cut.
  std::optional<SeriesPoint> last() const { return last_; }

 private:
  void JoinNeighbours();

  size_t capacity_;
  int64_t stride_ = 1;
  std::vector<SeriesBucket> buckets_;
  std::optional<SeriesPoint> last_;
};

// The curve's means, smoothed: each becomes the mean of all, with weights that
// fall exponentially to both sides, over about a hundredth of the buckets.
// (TensorBoard's average has the left side alone, and lags behind.) Points at
// the buckets' ends, NaN for those that are gaps. Empty for fewer than
// kFewestSmoothed buckets, which show what they are by themselves.
constexpr size_t kFewestSmoothed = 50;
std::vector<SeriesPoint> SmoothedMeans(const ThinnedSeries& series);

// The median of the buckets' means, each by its number of points; none: there
// are no values.
std::optional<double> MedianMean(const ThinnedSeries& series);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_THINNED_SERIES_H_
