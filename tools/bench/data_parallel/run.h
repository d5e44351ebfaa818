// Comparison of ways of training: losses first, then times in turns.

#ifndef TANDEM_TOOLS_BENCH_DATA_PARALLEL_RUN_H_
#define TANDEM_TOOLS_BENCH_DATA_PARALLEL_RUN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/data_parallel/nets.h"
#include "tools/bench/data_parallel/ways.h"

namespace tandem {

struct WayResult {
  std::string name;
  double apart = 0;             // of the first one's losses, at most
  std::vector<double> wall_ms;  // a step, by round
  std::vector<double> cpu_ms;
};

struct RunLength {
  int checked_steps = 5;  // of which losses are compared
  int rounds = 7;
  int steps = 10;  // of a round
};

// All ways take the same steps. Internal, naming the way and the step, where a
// loss is further than 1e-4 from the first way's.
absl::StatusOr<std::vector<WayResult>> CompareWays(
    const BenchProblem& problem, const std::vector<NamedWay>& ways,
    const RunLength& length);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_DATA_PARALLEL_RUN_H_
