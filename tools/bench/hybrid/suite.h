// The suite "hybrid": tandem's replicas of pipelines beside PyTorch's, each
// workload in each layout data x pipe.

#ifndef TANDEM_TOOLS_BENCH_HYBRID_SUITE_H_
#define TANDEM_TOOLS_BENCH_HYBRID_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/measure/overlap_times.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// Cases MODEL/LAYOUT: the workloads of pipelines, in the layouts "1x1", "2x1"
// (replicas x devices), "1x2", "2x2" (two ranks of two devices) and "2x2_ranks"
// (four ranks, two of them a replica). Learning rates are such that losses tell
// when replicas do not average.
//
// The peer's DistributedDataParallel does not see the weight gradients that its
// zero-bubble schedule computes, and averages nothing then: with that schedule
// it has the recipe "flat" alone.
std::vector<Case> HybridCases();

// MODEL/LAYOUT for one workload, in all of these layouts.
std::vector<Case> CasesInLayouts(const Workload& workload);

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
