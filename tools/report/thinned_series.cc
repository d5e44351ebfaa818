#include "tools/report/thinned_series.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem {
namespace {

SeriesBucket OnePoint(double x, double y) {
  const bool has_value =
      std::isfinite(y) && std::abs(y) <= ThinnedSeries::kMostMagnitude;
  SeriesBucket bucket;
  bucket.first_x = x;
  bucket.last_x = x;
  bucket.count = has_value ? 1 : 0;
  bucket.gaps = has_value ? 0 : 1;
  bucket.least = {x, has_value ? y : 0};
  bucket.greatest = bucket.least;
  bucket.mean = bucket.least.y;
  return bucket;
}

SeriesBucket Joined(const SeriesBucket& left, const SeriesBucket& right) {
  SeriesBucket both = left.count > 0 ? left : right;
  both.first_x = left.first_x;
  both.last_x = right.last_x;
  both.gaps = left.gaps + right.gaps;
  if (left.count == 0 || right.count == 0) return both;
  if (right.least.y < both.least.y) both.least = right.least;
  if (right.greatest.y > both.greatest.y) both.greatest = right.greatest;
  both.count = left.count + right.count;
  const double part =
      static_cast<double>(right.count) / static_cast<double>(both.count);
  both.mean = left.mean + part * (right.mean - left.mean);
  return both;
}

// What is known of the points of `bucket` up to `x`: its extremes.
SeriesBucket CutAt(const SeriesBucket& bucket, double x) {
  SeriesBucket cut;
  cut.first_x = bucket.first_x;
  cut.last_x = bucket.first_x;
  for (const SeriesPoint& point : bucket.extremes()) {
    if (point.x > x) continue;
    const SeriesBucket one = OnePoint(point.x, point.y);
    cut = cut.count > 0 ? Joined(cut, one) : one;
  }
  cut.first_x = bucket.first_x;
  // Nobody knows where its gaps were.
  if (cut.count == 0) cut.gaps = 1;
  return cut;
}

// A mean with falling weights: each value's is `kept` times that of the next.
class MovingSum {
 public:
  explicit MovingSum(double kept) : kept_(kept) {}

  void Add(const SeriesBucket& bucket) {
    if (bucket.count == 0) return;
    sum_ = kept_ * sum_ + bucket.mean;
    weight_ = kept_ * weight_ + 1;
  }
  double sum() const { return sum_; }
  double weight() const { return weight_; }

 private:
  double kept_;
  double sum_ = 0;
  double weight_ = 0;
};

}  // namespace

std::vector<SeriesPoint> SeriesBucket::extremes() const {
  if (count == 0) return {};
  if (least.x == greatest.x) return {least};
  return least.x < greatest.x ? std::vector<SeriesPoint>{least, greatest}
                              : std::vector<SeriesPoint>{greatest, least};
}

ThinnedSeries::ThinnedSeries(size_t capacity) : capacity_(capacity) {
  CHECK(capacity_ >= 2 && capacity_ % 2 == 0) << capacity_;
}

void ThinnedSeries::Add(double x, double y) {
  const SeriesBucket point = OnePoint(x, y);
  if (point.count > 0) last_ = point.least;
  if (!buckets_.empty()) {
    SeriesBucket& end = buckets_.back();
    if (end.count + end.gaps < stride_) {
      end = Joined(end, point);
      return;
    }
  }
  if (buckets_.size() == capacity_) JoinNeighbours();
  buckets_.push_back(point);
}

void ThinnedSeries::JoinNeighbours() {
  for (size_t i = 0; i < buckets_.size() / 2; ++i) {
    buckets_[i] = Joined(buckets_[2 * i], buckets_[2 * i + 1]);
  }
  buckets_.resize(buckets_.size() / 2);
  stride_ *= 2;
}

void ThinnedSeries::DropAfter(double x) {
  while (!buckets_.empty() && buckets_.back().first_x > x) buckets_.pop_back();
  if (last_ && last_->x > x) last_.reset();
  if (buckets_.empty()) return;
  SeriesBucket& end = buckets_.back();
  if (end.last_x > x) end = CutAt(end, x);
  // A bucket of one point has it.
  if (!last_ && end.count == 1) last_ = end.least;
}

int64_t ThinnedSeries::gaps() const {
  int64_t gaps = 0;
  for (const SeriesBucket& bucket : buckets_) gaps += bucket.gaps;
  return gaps;
}

std::vector<SeriesPoint> SmoothedMeans(const ThinnedSeries& series) {
  const std::vector<SeriesBucket>& buckets = series.buckets();
  if (buckets.size() < kFewestSmoothed) return {};
  const double kept = 1 - 200.0 / static_cast<double>(buckets.size() + 200);
  std::vector<SeriesPoint> points(buckets.size());
  std::vector<double> weights(buckets.size());
  MovingSum before(kept);
  for (size_t i = 0; i < buckets.size(); ++i) {
    points[i] = {buckets[i].last_x, kept * before.sum()};
    weights[i] = kept * before.weight();
    before.Add(buckets[i]);
  }
  MovingSum behind(kept);
  for (size_t i = buckets.size(); i-- > 0;) {
    behind.Add(buckets[i]);
    points[i].y = buckets[i].count == 0 ? std::nan("")
                                        : (points[i].y + behind.sum()) /
                                              (weights[i] + behind.weight());
  }
  return points;
}

std::optional<double> MedianMean(const ThinnedSeries& series) {
  std::vector<std::pair<double, int64_t>> means;
  int64_t all = 0;
  for (const SeriesBucket& bucket : series.buckets()) {
    if (bucket.count == 0) continue;
    means.emplace_back(bucket.mean, bucket.count);
    all += bucket.count;
  }
  std::sort(means.begin(), means.end());
  int64_t before = 0;
  for (const auto& [mean, count] : means) {
    before += count;
    if (2 * before >= all) return mean;
  }
  return std::nullopt;
}

}  // namespace tandem
