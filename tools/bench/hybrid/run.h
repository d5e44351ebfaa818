// The cases of the hybrid's benchmark: tandem and PyTorch side by side.

#ifndef TANDEM_TOOLS_BENCH_HYBRID_RUN_H_
#define TANDEM_TOOLS_BENCH_HYBRID_RUN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/comparison/result.h"
#include "tools/bench/comparison/start.h"
#include "tools/bench/measure/overlap_times.h"

namespace tandem {

struct HybridResult : CaseResult {
  // One setting, the fastest that can be reproducible: without and with it.
  // Without figures where that was not asked for.
  SideResult plain;
  SideResult reproducible;
  OverlapTimes overlap;  // of ours; zeros where there is one replica
};

// Runs cases of one model, in a folder of its own. All contenders begin from
// the same weights and batches; each tries its settings, whose losses are
// compared before they are timed, and keeps the fastest; then they take turns,
// among them with `reproducible` tandem with and without that flag. Prints what
// it does on stderr.
//
// An error when one of tandem's fails. A peer that fails, or whose losses
// differ, has no figures: its results say why.
absl::StatusOr<std::vector<HybridResult>> RunHybridModel(
    const std::vector<Case>& cases, bool reproducible,
    const ComparisonOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_HYBRID_RUN_H_
