// Simulation of a schedule: the rule by which actions wait for each other, a
// walk through all of them by it, and the time that a step is predicted to
// take. What proves, times or measures a schedule goes by this one.

#ifndef TANDEM_PARALLEL_SCHEDULE_SIMULATION_H_
#define TANDEM_PARALLEL_SCHEDULE_SIMULATION_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// What must be done before an action of the same microbatch, beside what stands
// before it in its device's list.
struct Prerequisite {
  bool is_forward = true;  // else the backward that gives inputs' gradients
  int stage = 0;
};

// A forward waits for that of the stage before; a backward for that of the
// stage behind and its own forward; the weights' part for its own forward and
// the input's part. The neighbour's, whose message it takes, comes first.
absl::InlinedVector<Prerequisite, 2> ActionPrerequisites(const Action& action,
                                                         int stages);

// The stage to which the action sends what it makes; -1: to none.
int ReceivingStage(const Action& action, int stages);

struct SimulationOptions {
  // Messages that a channel between two stages of different devices holds; with
  // 0 its sender waits until the receiver takes the message.
  int channel_capacity = 0;
  // How long an action takes; null: no time.
  std::function<double(const Action&)> duration;
  // From the end of an action to when one of another device that needs it can
  // begin.
  double transfer = 0;
};

struct SimulatedAction {
  int device = 0;
  Action action;
  double begin = 0;  // if no channel is ever full
  double end = 0;
  // Microbatches (by stage) that the device keeps after it: those whose forward
  // is done, and whose backward, in two parts the second, is not.
  int kept = 0;
};

struct StuckAction {
  int device = 0;
  Action action;
  // None: it waits for room in the channel to its receiver.
  std::optional<Prerequisite> missing;
};

struct Simulation {
  // Each after its prerequisites, and in the order of its device.
  std::vector<SimulatedAction> done;
  // The next action of each device that cannot go on.
  std::vector<StuckAction> stuck;
};

// Takes each device's next action as soon as it can be taken. Whether all end
// does not depend on how long they take. Requires CheckCompleteness.
Simulation Simulate(const Schedule& schedule, const SimulationOptions& options);

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

#endif  // TANDEM_PARALLEL_SCHEDULE_SIMULATION_H_
