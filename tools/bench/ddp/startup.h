// How long it takes until a job of several ranks has done its first step.

#ifndef TANDEM_TOOLS_BENCH_STARTUP_H_
#define TANDEM_TOOLS_BENCH_STARTUP_H_

#include "absl/status/statusor.h"
#include "tools/bench/run_case.h"

namespace tandem {

struct StartupResult {
  double ours_ms = 0;  // medians
  double peer_ms = 0;
};

// From the start of `train --nproc_per_node=RANKS` to the line that reports the
// first step, and the same of torchrun with peers/first_step.py: mlp_small, not
// bound to cores, in turns.
absl::StatusOr<StartupResult> MeasureStartup(const BenchOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_STARTUP_H_
