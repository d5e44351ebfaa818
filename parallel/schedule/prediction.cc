#include "parallel/schedule/prediction.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/schedule/simulation.h"

namespace tandem {
namespace {

double ActionDuration(const Action& action, const StageCost& cost) {
  switch (action.kind) {
    case ActionKind::kForward:
      return cost.forward;
    case ActionKind::kBackward:
      return cost.backward_input + cost.backward_weight;
    case ActionKind::kBackwardInput:
      return cost.backward_input;
    case ActionKind::kBackwardWeight:
      return cost.backward_weight;
  }
  return 0;
}

absl::Status CheckCosts(const Schedule& schedule, const ScheduleCosts& costs) {
  bool fits = costs.stages.size() == static_cast<size_t>(schedule.stages) &&
              costs.transfer >= 0;
  for (const StageCost& each : costs.stages) {
    fits = fits && each.forward >= 0 && each.backward_input >= 0 &&
           each.backward_weight >= 0;
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the costs of ", costs.stages.size(),
                   " stages were given for a schedule of ", schedule.stages,
                   ": expected one of each, none negative"));
}

// The step, and what of it is not used.
void Sum(SchedulePrediction& made) {
  double busy = 0;
  double busiest = 0;
  for (size_t device = 0; device < made.devices.size(); ++device) {
    for (const TimedAction& each : made.devices[device]) {
      made.step = std::max(made.step, each.end);
    }
    busy += made.busy[device];
    busiest = std::max(busiest, made.busy[device]);
  }
  const double all = made.step * static_cast<double>(made.devices.size());
  made.idle = all > 0 ? 1 - busy / all : 0;
  made.bubble = made.step - busiest;
}

}  // namespace

absl::StatusOr<SchedulePrediction> PredictSchedule(const Schedule& schedule,
                                                   const ScheduleCosts& costs) {
  const absl::Status checked = CheckCosts(schedule, costs);
  if (!checked.ok()) return checked;
  const auto duration = [&costs](const Action& action) {
    return ActionDuration(action, costs.stages[action.stage]);
  };
  const Simulation simulation =
      Simulate(schedule, {schedule.microbatches, duration, costs.transfer});
  CHECK(simulation.stuck.empty())
      << "schedule " << schedule.name << " is not valid";
  SchedulePrediction made;
  made.devices.resize(schedule.actions.size());
  made.busy.resize(schedule.actions.size(), 0);
  for (const SimulatedAction& each : simulation.done) {
    made.devices[each.device].push_back({each.action, each.begin, each.end});
    made.busy[each.device] += duration(each.action);
  }
  Sum(made);
  return made;
}

}  // namespace tandem
