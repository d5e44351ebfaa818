// The suite "replacement": what a rank's death costs, by replacement and by
// restart.

#ifndef TANDEM_TOOLS_BENCH_REPLACEMENT_SUITE_H_
#define TANDEM_TOOLS_BENCH_REPLACEMENT_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// Each way trains the same epoch of the same samples.
struct ReplacementBench {
  int ranks = 3;
  int steps = 300;                 // of all ranks
  int dies_at = 150;               // in this one, the last rank
  int save_every = 100;            // of all ways
  int rounds = 3;                  // in which each way comes once
  std::string model = "mlp_wide";  // of WorkloadNamed
  std::string folder;              // scratch
};

// Seconds from the program's start to its end, by round.
struct ReplacementResult {
  std::vector<double> undisturbed;
  std::vector<double> replaced;
  std::vector<double> restarted;
};

// Internal for a job that fails, or that is not disturbed as it was to be;
// NotFound for an unknown model.
absl::StatusOr<ReplacementResult> MeasureReplacement(
    const ReplacementBench& bench);

// Figures of one model.
struct ModelReplacement {
  std::string model;
  ReplacementResult times;
};

// "ways": medians, and what the death cost; "rounds": the seconds of each.
std::vector<Table> ReplacementTables(
    const std::vector<ModelReplacement>& results);

absl::StatusOr<SuiteReport> RunReplacementSuite(const BenchFlags& flags,
                                                const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_REPLACEMENT_SUITE_H_
