// What the flight recorder costs: nanoseconds for each entry from its start to
// its end, and what that is of a training step.
//
//   bazel run -c opt //tools/bench:flight_benchmark
//   bazel run -c opt //tools/bench:flight_benchmark -- --threads=4
//
// --step_ms and --entries describe the step: as they stand, 2 ms with 16
// collectives, which is more often than any case of docs/performance.md.

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tools/bench/measure/flight_cost.h"
#include "tools/bench/measure/median.h"

ABSL_FLAG(int, threads, 1, "that note at the same time");
ABSL_FLAG(int, rounds, 15, "of which the median is shown");
ABSL_FLAG(double, step_ms, 2, "of the step that the cost is compared with");
ABSL_FLAG(int, entries, 16, "of such a step");

namespace tandem {
namespace {

void Run() {
  std::vector<double> rounds;
  for (int i = 0; i < std::max(1, absl::GetFlag(FLAGS_rounds)); ++i) {
    rounds.push_back(NanosecondsOfFlightEntry(absl::GetFlag(FLAGS_threads)));
  }
  const double median = Median(rounds);
  const double step_ns = absl::GetFlag(FLAGS_step_ms) * 1e6;
  std::printf("%.0f ns an entry, %.3f %% of a step of %g ms with %d\n", median,
              100 * median * absl::GetFlag(FLAGS_entries) / step_ns,
              absl::GetFlag(FLAGS_step_ms), absl::GetFlag(FLAGS_entries));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  tandem::Run();
}
