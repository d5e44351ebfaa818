// What a run of the pipeline's benchmark came to.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_RESULT_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_RESULT_H_

#include <string>
#include <vector>

#include "parallel/schedule/prediction.h"
#include "tools/bench/pipeline_case.h"
#include "tools/bench/pipeline_limit.h"

namespace tandem {

// Times are in milliseconds; where ranks differ, they are the slowest rank's.
struct PipelineSideResult {
  std::string name;              // "tandem", "pipelining" or "single"
  std::string failure;           // why there are no figures; empty: there are
  PipelineSetting setting;       // the fastest of those it could choose from
  std::vector<double> step_ms;   // by round
  std::vector<double> alone_ms;  // by round: a core's step of the whole model,
                                 // with the other core equally busy
  std::vector<double> cpu_ms;    // by round: processor time, the most of a rank
  double peak_mib = 0;           // the most memory of a rank
};

struct PipelineCaseResult {
  PipelineCase bench;
  PipelineSideResult ours;
  std::vector<PipelineSideResult> peers;
  std::vector<StageCost> stages;  // ours, of one microbatch
  double optimizer_ms = 0;        // ours
  // Of our schedule with our number of microbatches: with stages that take as
  // long as ours on the average, and with ours.
  double limit = 0;
  double stage_limit = 0;
  StepParts parts;
};

// A peer's schedule that was tried, and does not run.
struct UnavailableSchedule {
  std::string model;
  std::string schedule;
  std::string reason;
};

struct PipelineResults {
  std::vector<PipelineCaseResult> cases;
  std::vector<UnavailableSchedule> unavailable;
};

// (one core's time for the whole batch / devices) / step: a median over the
// rounds. 0 where either was not measured.
double EfficiencyOf(const PipelineSideResult& side, int devices);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_RESULT_H_
