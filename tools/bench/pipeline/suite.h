// The suite "pipeline": tandem's pipelines beside PyTorch's.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_SUITE_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/pipeline/run.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// (one core's time for the whole batch / devices) / step: a median over the
// rounds. 0 where either was not measured.
double PipelineEfficiency(const SideResult& side, int devices);

// "cases", "failures", "kernels", with processor time of a step on one core
// (the busiest rank's) and the settings.
// "efficiency": beside the schedule's limit, that at best, with our number of
// microbatches; of it what is reached; and what a microbatch costs beyond
// theory. The peer's are the first's that has an efficiency.
// "parts": where our steps' time goes.
// "best", of each model and peer: our best schedule and the peer's best.
// "unavailable": schedules of the peer that do not run.
std::vector<Table> PipelineTables(const PipelineResults& results);

// Unavailable, besides its figures, where a peer has none.
absl::StatusOr<SuiteReport> RunPipelineSuite(const BenchFlags& flags,
                                             const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_SUITE_H_
