// Schedule prediction: when its actions would run, given how long each takes.

#ifndef TANDEM_PARALLEL_SCHEDULE_PREDICTION_H_
#define TANDEM_PARALLEL_SCHEDULE_PREDICTION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// The cost of one stage and one microbatch, in any unit of time. A whole
// backward takes as long as both parts.
struct StageCost {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

struct ScheduleCosts {
  std::vector<StageCost> stages;  // by stage
  // From the end of an action to the moment at which a stage on another device
  // can use what it made; nobody is busy meanwhile.
  double transfer = 0;
};

struct TimedAction {
  Action action;
  double begin = 0;
  double end = 0;
};

struct SchedulePrediction {
  std::vector<std::vector<TimedAction>> devices;
  double step = 0;  // the end of the last action
  // What part of the devices' time between 0 and `step` is not used.
  double idle = 0;
  // The bubble as papers count it: the step beyond what the busiest device
  // computes.
  double bubble = 0;
  std::vector<double> busy;  // by device
};

// Requires a schedule that ValidateSchedule accepts, for channels that are
// never full. InvalidArgument when `costs` has another number of stages or
// negative times.
absl::StatusOr<SchedulePrediction> PredictSchedule(const Schedule& schedule,
                                                   const ScheduleCosts& costs);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_PREDICTION_H_
