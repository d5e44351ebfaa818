// What a run of the hybrid's benchmark came to.

#ifndef TANDEM_TOOLS_BENCH_HYBRID_RESULT_H_
#define TANDEM_TOOLS_BENCH_HYBRID_RESULT_H_

#include "tools/bench/hybrid_case.h"
#include "tools/bench/overlap_times.h"
#include "tools/bench/pipeline_result.h"

namespace tandem {

struct HybridCaseResult {
  HybridCase bench;
  PipelineSideResult ours;
  PipelineSideResult peer;
  // One setting, the fastest that can be reproducible: without and with it.
  // Without figures where that was not asked for.
  PipelineSideResult plain;
  PipelineSideResult reproducible;
  OverlapTimes overlap;  // of ours; zeros where there is one replica
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_HYBRID_RESULT_H_
