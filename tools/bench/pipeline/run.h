// The cases of the pipeline's benchmark: tandem and its peers side by side.

#ifndef TANDEM_TOOLS_BENCH_RUN_PIPELINE_H_
#define TANDEM_TOOLS_BENCH_RUN_PIPELINE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/pipeline_case.h"
#include "tools/bench/pipeline_result.h"
#include "tools/bench/pipeline_sides.h"

namespace tandem {

// Runs cases of one model. All sides begin from the same weights and batches;
// each tries its settings, whose losses are compared before they are timed, and
// keeps the fastest; then the sides take turns. Prints what it does on stderr.
//
// An error when tandem's own side fails. A peer that fails, or whose losses
// differ, has no figures from then on: its results say why.
absl::StatusOr<PipelineResults> RunPipelineModel(
    const std::vector<PipelineCase>& cases,
    const PipelineBenchOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RUN_PIPELINE_H_
