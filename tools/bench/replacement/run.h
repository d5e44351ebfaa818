// What a rank's death costs a job: one that replaces the rank while the others
// go on, one that restarts all from the last checkpoint, and one that loses
// nobody.

#ifndef TANDEM_TOOLS_BENCH_REPLACEMENT_RUN_H_
#define TANDEM_TOOLS_BENCH_REPLACEMENT_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Of each way the same epoch of the same samples.
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

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_REPLACEMENT_RUN_H_
