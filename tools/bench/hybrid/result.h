// Results of a case of the hybrid's benchmark.

#ifndef TANDEM_TOOLS_BENCH_HYBRID_RESULT_H_
#define TANDEM_TOOLS_BENCH_HYBRID_RESULT_H_

#include "tools/bench/comparison/result.h"
#include "tools/bench/measure/overlap_times.h"

namespace tandem {

struct HybridResult : CaseResult {
  // One setting, the fastest that can be reproducible: without and with it.
  // Without figures where that was not asked for.
  SideResult plain;
  SideResult reproducible;
  OverlapTimes overlap;  // of ours; zeros where there is one replica
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_HYBRID_RESULT_H_
