// The cases of the pipeline's benchmark: tandem and its peers side by side.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_RUN_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/comparison/start.h"
#include "tools/bench/pipeline/result.h"

namespace tandem {

// Peers: torch.distributed.pipelining, a process for each device; one process,
// which trains the model in one piece.
inline constexpr char kPipelining[] = "pipelining";
inline constexpr char kSingle[] = "single";

// Runs cases of one model. All contenders begin from the same weights and
// batches; each tries its settings, whose losses are compared before they are
// timed, and keeps the fastest; then they take turns. Prints what it does on
// stderr.
//
// An error when tandem itself fails. A peer that fails, or whose losses differ,
// has no figures from then on: its results say why.
absl::StatusOr<PipelineResults> RunPipelineModel(
    const std::vector<Case>& cases, const std::vector<std::string>& peers,
    const ComparisonOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_RUN_H_
