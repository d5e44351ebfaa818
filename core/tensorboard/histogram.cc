#include "core/tensorboard/histogram.h"

#include <ATen/Parallel.h>
#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

// Edges of all buckets, ascending.
std::vector<double> MakeEdges() {
  std::vector<double> positive;
  for (double edge = 1e-12; edge < 1e20; edge *= 1.1) positive.push_back(edge);
  positive.push_back(DBL_MAX);
  std::vector<double> edges;
  for (auto each = positive.rbegin(); each != positive.rend(); ++each) {
    edges.push_back(-*each);
  }
  edges.push_back(0);
  edges.insert(edges.end(), positive.begin(), positive.end());
  return edges;
}

const std::vector<double>& Edges() {
  static const auto* const edges = new std::vector<double>(MakeEdges());
  return *edges;
}

size_t BucketCount() { return Edges().size() - 1; }

size_t BucketIndex(double value) {
  const std::vector<double>& edges = Edges();
  const auto right = std::upper_bound(edges.begin(), edges.end(), value);
  // DBL_MAX is in the last one.
  return std::min<size_t>(right - edges.begin(), BucketCount()) - 1;
}

absl::Status CheckValues(const at::Tensor& values) {
  const auto refused = [](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a histogram takes a dense tensor of real numbers; this one ", why));
  };
  if (!values.defined()) return refused("is undefined");
  if (values.layout() != c10::kStrided) return refused("is not dense");
  if (values.is_meta()) return refused("has no values (meta)");
  if (values.is_complex()) return refused("has complex numbers");
  if (values.is_quantized()) return refused("has quantized numbers");
  if (values.numel() == 0) return refused("has no elements");
  return absl::OkStatus();
}

// The part of a histogram that comes from some values, but for buckets.
struct Moments {
  double min = DBL_MAX, max = -DBL_MAX, sum = 0, sum_of_squares = 0;
  int64_t count = 0;
};

Moments CountPiece(const double* values, int64_t size, int64_t* buckets) {
  Moments moments;
  for (int64_t i = 0; i < size; ++i) {
    const double value = values[i];
    if (!std::isfinite(value)) continue;
    moments.min = std::min(moments.min, value);
    moments.max = std::max(moments.max, value);
    moments.sum += value;
    moments.sum_of_squares += value * value;
    ++moments.count;
    ++buckets[BucketIndex(value)];
  }
  return moments;
}

// Values that are converted at a time, and that are added in one go.
constexpr int64_t kChunk = int64_t{1} << 20;
constexpr int64_t kPiece = int64_t{1} << 14;

class HistogramSum {
 public:
  HistogramSum() : buckets_(BucketCount()) {}

  // Contiguous, of float64, on the CPU.
  void Add(const at::Tensor& values);
  Histogram Result() const;

 private:
  Moments moments_;
  std::vector<int64_t> buckets_;
  int64_t size_ = 0;
};

void HistogramSum::Add(const at::Tensor& values) {
  const int64_t size = values.numel();
  const auto* const first = values.const_data_ptr<double>();
  std::vector<Moments> moments((size + kPiece - 1) / kPiece);
  std::vector<std::vector<int64_t>> buckets(
      at::get_num_threads(), std::vector<int64_t>(BucketCount()));
  const auto pieces = static_cast<int64_t>(moments.size());
  at::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    int64_t* const mine = buckets[at::get_thread_num()].data();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = i * kPiece;
      moments[i] =
          CountPiece(first + from, std::min(kPiece, size - from), mine);
    }
  });
  for (const Moments& each : moments) {
    moments_.min = std::min(moments_.min, each.min);
    moments_.max = std::max(moments_.max, each.max);
    moments_.sum += each.sum;
    moments_.sum_of_squares += each.sum_of_squares;
    moments_.count += each.count;
  }
  for (const std::vector<int64_t>& each : buckets) {
    for (size_t i = 0; i < each.size(); ++i) buckets_[i] += each[i];
  }
  size_ += size;
}

Histogram HistogramSum::Result() const {
  Histogram histogram;
  histogram.nonfinite = size_ - moments_.count;
  if (moments_.count == 0) return histogram;
  histogram.min = moments_.min;
  histogram.max = moments_.max;
  histogram.sum = moments_.sum;
  histogram.sum_of_squares = moments_.sum_of_squares;
  histogram.count = moments_.count;
  const size_t first = BucketIndex(moments_.min);
  const size_t last = BucketIndex(moments_.max);
  histogram.limits.assign(Edges().begin() + first, Edges().begin() + last + 2);
  histogram.counts.assign(1, 0);
  histogram.counts.insert(histogram.counts.end(), buckets_.begin() + first,
                          buckets_.begin() + last + 1);
  return histogram;
}

}  // namespace

absl::StatusOr<Histogram> ValueHistogram(const at::Tensor& values) {
  TANDEM_RETURN_IF_ERROR(CheckValues(values));
  HistogramSum sum;
  const auto add = [&] {
    const at::NoGradGuard no_grad;
    const at::Tensor all = values.detach().reshape({-1});
    for (int64_t i = 0; i < all.numel(); i += kChunk) {
      const int64_t size = std::min(kChunk, all.numel() - i);
      // On the host first: not every device knows float64.
      sum.Add(all.narrow(0, i, size).to(at::kCPU).to(at::kDouble).contiguous());
    }
  };
  TANDEM_RETURN_IF_ERROR(CatchTorch(add, "a histogram"));
  return sum.Result();
}

// Limits are those of all edges from the first to the last.
Histogram Merged(const Histogram& a, const Histogram& b) {
  if (a.count == 0 || b.count == 0) {
    Histogram merged = a.count == 0 ? b : a;
    merged.nonfinite = a.nonfinite + b.nonfinite;
    return merged;
  }
  Histogram merged;
  merged.min = std::min(a.min, b.min);
  merged.max = std::max(a.max, b.max);
  merged.sum = a.sum + b.sum;
  merged.sum_of_squares = a.sum_of_squares + b.sum_of_squares;
  merged.count = a.count + b.count;
  merged.nonfinite = a.nonfinite + b.nonfinite;
  const std::vector<double>& edges = Edges();
  const auto begin = std::lower_bound(
      edges.begin(), edges.end(), std::min(a.limits.front(), b.limits.front()));
  const auto end = std::upper_bound(begin, edges.end(),
                                    std::max(a.limits.back(), b.limits.back()));
  merged.limits.assign(begin, end);
  merged.counts.resize(merged.limits.size());
  for (const Histogram* each : {&a, &b}) {
    const auto first = std::lower_bound(
        merged.limits.begin(), merged.limits.end(), each->limits.front());
    const auto offset = static_cast<size_t>(first - merged.limits.begin());
    for (size_t i = 0; i < each->counts.size(); ++i) {
      merged.counts[offset + i] += each->counts[i];
    }
  }
  return merged;
}

}  // namespace tandem
