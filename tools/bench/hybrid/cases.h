// Cases of the hybrid: each workload in each layout data x pipe.

#ifndef TANDEM_TOOLS_BENCH_HYBRID_CASES_H_
#define TANDEM_TOOLS_BENCH_HYBRID_CASES_H_

#include <vector>

#include "tools/bench/case/case.h"

namespace tandem {

// MODEL/LAYOUT: the workloads of pipelines, in the layouts "1x1", "2x1"
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

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_HYBRID_CASES_H_
