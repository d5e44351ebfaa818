// Do two sides train the same?

#ifndef TANDEM_TOOLS_BENCH_COMPARE_LOSSES_H_
#define TANDEM_TOOLS_BENCH_COMPARE_LOSSES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// As far as they may differ, relative to the peer's.
constexpr double kLossTolerance = 1e-4;

// Internal, naming the first step at which the losses differ by more, or one
// that is not finite.
absl::Status CompareLosses(const std::vector<double>& ours,
                           const std::string& peer,
                           const std::vector<double>& peers);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARE_LOSSES_H_
