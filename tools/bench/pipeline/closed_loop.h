// Predictions of a step's time, closed in a loop: from a profile to cuts, from
// cuts to the time of a step, and whether that is what a step takes.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_CLOSED_LOOP_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_CLOSED_LOOP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/balance/cut.h"
#include "tools/bench/case/workload.h"

namespace tandem {

struct ClosedLoopOptions {
  Workload workload;
  std::string schedule = "1f1b";
  int chunks = 1;
  int microbatches = 4;
  int weight_gradient_batch = 1;
  int rounds = 7;
  int steps = 8;                      // measured in each round
  std::vector<int> cores = {-1, -1};  // a device each; -1: bound to none
};

// In milliseconds, medians of the round.
struct ClosedLoopRound {
  double by_layers = 0;  // predicted from a profile of single layers
  double by_stages = 0;  // predicted from the stages' times
  double measured = 0;
  double optimizer = 0;  // the slowest device's; part of all three
};

struct ClosedLoopResult {
  Cuts cuts;
  std::vector<ClosedLoopRound> rounds;
};

// Cuts the workload's model by a profile for a pipeline over the cores of this
// process. Then, round by round: profiles the layers again, and times the
// stages (tools/bench/stages/calibration.h), with all cores equally busy;
// predicts a step from either; measures steps of the pipeline. A device's
// optimizer follows its last action, in predictions with its measured time.
//
// A profile runs each layer forward and backward at once, with its weights and
// values in the caches; a stage comes back to a layer after all its others.
absl::StatusOr<ClosedLoopResult> RunClosedLoop(
    const ClosedLoopOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_CLOSED_LOOP_H_
