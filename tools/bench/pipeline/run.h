// The cases of the pipeline's benchmark: tandem and its peers side by side.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_RUN_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/comparison/start.h"
#include "tools/bench/pipeline/limit.h"

namespace tandem {

struct PipelineResult : CaseResult {
  // The limit of our schedule with our number of microbatches, when stages take
  // as long as ours on the average.
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

// Peers: torch.distributed.pipelining, a process for each device; one process,
// which trains the model in one piece.
inline constexpr char kPipelining[] = "pipelining";
inline constexpr char kSingle[] = "single";

// Runs cases of one model, in a folder of its own. All contenders begin from
// the same weights and batches; each tries its settings, whose losses are
// compared before they are timed, and keeps the fastest; then they take turns.
// Prints what it does on stderr.
//
// An error when tandem itself fails. A peer that fails, or whose losses differ,
// has no figures from then on: its results say why.
absl::StatusOr<PipelineResults> RunPipelineModel(
    const std::vector<Case>& cases, const std::vector<std::string>& peers,
    const ComparisonOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_RUN_H_
