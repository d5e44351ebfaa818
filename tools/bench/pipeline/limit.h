// Limits of schedules: how well one can do at the best.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_LIMIT_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_LIMIT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "parallel/schedule/prediction.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// The part of its devices' time that a schedule uses when stages take `costs`,
// and nothing is lost on the way: work / (devices x step). With equal stages
// that is what the papers' formulas say: 1F1B M / (M + S - 1).
absl::StatusOr<double> PipelineLimit(const Schedule& schedule,
                                     const std::vector<StageCost>& costs);

// The same number of stages, each the mean of these: a cut as good as it can
// be.
std::vector<StageCost> Evened(const std::vector<StageCost>& costs);

// Where the time of a step goes, in milliseconds. The parts add up to `step`.
struct StepParts {
  double step = 0;
  double floor = 0;  // one core's time for the whole batch, / devices
  // What computing in microbatches costs beyond that, a device; negative where
  // it is faster.
  double microbatching = 0;
  double bubble = 0;     // of the schedule, with equal stages
  double imbalance = 0;  // what it is more because stages differ
  double rest = 0;       // threads, messages, memory
};

struct StepMeasurements {
  double step_ms = 0;
  double alone_ms = 0;            // one core's, for the whole batch
  double optimizer_ms = 0;        // all devices at the same time
  std::vector<StageCost> stages;  // of one microbatch, in ms
};

absl::StatusOr<StepParts> PartsOfStep(const Schedule& schedule,
                                      const StepMeasurements& measured);

// What each microbatch costs beyond theory, in milliseconds:
// (step - alone / devices / limit) / microbatches.
double OverheadOfMicrobatch(double step_ms, double alone_ms, double limit,
                            int devices, int microbatches);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_LIMIT_H_
