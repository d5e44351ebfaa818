// Results of a run of the pipeline's benchmark.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_RESULT_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_RESULT_H_

#include <string>
#include <vector>

#include "tools/bench/comparison/result.h"
#include "tools/bench/pipeline/limit.h"

namespace tandem {

struct PipelineResult : CaseResult {
  // Of our schedule with our number of microbatches, when stages take as long
  // as ours on the average.
  double limit = 0;
  StepParts parts;
};

// A peer's schedule that was tried, and does not run.
struct UnavailableSchedule {
  std::string model;
  std::string schedule;
  std::string reason;
};

struct PipelineResults {
  std::vector<PipelineResult> cases;
  std::vector<UnavailableSchedule> unavailable;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_RESULT_H_
