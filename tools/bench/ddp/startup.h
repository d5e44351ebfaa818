// Start-up times: how long until a job of several ranks has done its first
// step.

#ifndef TANDEM_TOOLS_BENCH_DDP_STARTUP_H_
#define TANDEM_TOOLS_BENCH_DDP_STARTUP_H_

#include "absl/status/statusor.h"
#include "tools/bench/comparison/start.h"

namespace tandem {

struct StartupResult {
  double ours_ms = 0;  // medians
  double peer_ms = 0;
};

// From the start of `train --nproc_per_node=RANKS` to the line that reports the
// first step, and the same of torchrun with peers/first_step.py: mlp_small, not
// bound to cores, in turns.
// Internal where one does not come that far.
absl::StatusOr<StartupResult> MeasureStartup(int ranks,
                                             const ComparisonOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_DDP_STARTUP_H_
