// Histogram of a tensor's values, in TensorBoard's exponential buckets.

#ifndef TANDEM_CORE_TENSORBOARD_HISTOGRAM_H_
#define TANDEM_CORE_TENSORBOARD_HISTOGRAM_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Buckets are those of SummaryWriter.add_histogram(bins="tensorflow"): their
// edges are 0, ±1e-12, and each 1.1 times the one before, up to ±1e20; beyond
// are two more, up to ±DBL_MAX, so that every finite value has one. A bucket
// has its left edge and not its right one. Empty ones on both sides are left
// out, but for one on the left, whose limit is the first edge.
struct Histogram {
  double min = 0, max = 0, sum = 0, sum_of_squares = 0;
  int64_t count = 0;           // finite values
  std::vector<double> limits;  // right edges, ascending
  std::vector<int64_t> counts;
  int64_t nonfinite = 0;  // NaN and infinite values, which nothing above has
};

// The histogram of all values of a dense tensor of real numbers
// (floating-point, integers, booleans), on any device, which is waited for.
// Sums are of float64, in one order for any number of threads. Where no value
// is finite there are no buckets. InvalidArgument for a tensor that is
// undefined or has no elements, for complex or quantized numbers, for one that
// is sparse or has no values (meta); errors of LibTorch: the device's memory,
// say.
absl::StatusOr<Histogram> ValueHistogram(const at::Tensor& values);

// The histogram of the values of both. Sums are those of `a`, and then of `b`.
Histogram Merged(const Histogram& a, const Histogram& b);

}  // namespace tandem

#endif  // TANDEM_CORE_TENSORBOARD_HISTOGRAM_H_
