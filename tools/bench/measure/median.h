// Medians, and what two series of paired measurements come to.

#ifndef TANDEM_TOOLS_BENCH_MEASURE_MEDIAN_H_
#define TANDEM_TOOLS_BENCH_MEASURE_MEDIAN_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// The middle one, or the mean of the two in the middle. Requires at least one.
double Median(std::vector<double> values);
// The same, and 0 of nothing.
double MedianOrZero(const std::vector<double>& values);

// The median rate of as many bytes each time.
double MegabytesPerSecond(int64_t bytes, const std::vector<double>& ms);

// A ratio of medians, and the least and the greatest of single pairs. `ratio`
// lies between the two.
struct Ratio {
  double ratio = 0;
  double min = 0;
  double max = 0;
};

// peers[i] / ours[i]: above 1 ours is faster. Requires equally many, at least
// one, all positive.
Ratio PairedRatio(const std::vector<double>& peers,
                  const std::vector<double>& ours);

// Times of one side, and of its peer, by round: they take turns, and who begins
// changes. The first error.
absl::Status TakeTurns(int rounds,
                       absl::FunctionRef<absl::StatusOr<double>()> our_time,
                       absl::FunctionRef<absl::StatusOr<double>()> peer_time,
                       std::vector<double>& ours, std::vector<double>& peers);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURE_MEDIAN_H_
