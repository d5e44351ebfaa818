// The suite "hybrid": tandem's replicas of pipelines beside PyTorch's.

#ifndef TANDEM_TOOLS_BENCH_HYBRID_SUITE_H_
#define TANDEM_TOOLS_BENCH_HYBRID_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/measure/overlap_times.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

struct HybridResult : CaseResult {
  // One setting, the fastest that can be reproducible: without and with it.
  // Without figures where that was not asked for.
  SideResult plain;
  SideResult reproducible;
  OverlapTimes overlap;  // of ours; zeros where there is one replica
};

// "cases", "failures", "kernels", with the most memory of a rank and the
// settings.
// "reproducible": what reproducible costs, with / without - 1, against the same
// setting without it, and against the fastest without it.
// "overlap", of several replicas: how long all-reduces take, and how much of it
// backward and cool-down hide.
std::vector<Table> HybridTables(const std::vector<HybridResult>& results);

// Unavailable, besides its figures, where a peer has none.
absl::StatusOr<SuiteReport> RunHybridSuite(const BenchFlags& flags,
                                           const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_HYBRID_SUITE_H_
