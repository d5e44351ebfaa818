#include "parallel/schedule/prediction.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/schedule/simulation.h"

namespace tandem {
namespace {

double DurationOf(const Action& action, const StageCost& cost) {
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

// Gives times to actions, each after what it waits for.
class Clock {
 public:
  Clock(const Schedule& schedule, const ScheduleCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        device_of_(DevicesOfStages(schedule)),
        free_at_(schedule.actions.size(), 0) {
    const size_t cells =
        static_cast<size_t>(schedule.stages) * schedule.microbatches;
    for (auto& direction : ends_) direction.resize(cells);
    made_.devices.resize(schedule.actions.size());
    made_.busy.resize(schedule.actions.size(), 0);
  }

  void Take(int device, const Action& action) {
    const double begin = std::max(ReadyAt(action), free_at_[device]);
    const double duration = DurationOf(action, costs_.stages[action.stage]);
    free_at_[device] = begin + duration;
    made_.busy[device] += duration;
    if (action.kind != ActionKind::kBackwardWeight) {
      End(IsForward(action.kind), action.stage, action.microbatch) =
          free_at_[device];
    }
    made_.devices[device].push_back({action, begin, free_at_[device]});
  }

  SchedulePrediction Sum() {
    double busy = 0;
    double busiest = 0;
    for (int device = 0; device < schedule_.devices(); ++device) {
      made_.step = std::max(made_.step, free_at_[device]);
      busy += made_.busy[device];
      busiest = std::max(busiest, made_.busy[device]);
    }
    const double all = made_.step * schedule_.devices();
    made_.idle = all > 0 ? 1 - busy / all : 0;
    made_.bubble = made_.step - busiest;
    return std::move(made_);
  }

 private:
  double& End(bool is_forward, int stage, int microbatch) {
    return ends_[is_forward ? 0 : 1]
                [static_cast<size_t>(stage) * schedule_.microbatches +
                 microbatch];
  }

  double ReadyAt(const Action& action) {
    double ready = 0;
    for (const Prerequisite& each : PrerequisitesOf(action, schedule_.stages)) {
      const bool crosses = device_of_[each.stage] != device_of_[action.stage];
      ready =
          std::max(ready, End(each.is_forward, each.stage, action.microbatch) +
                              (crosses ? costs_.transfer : 0));
    }
    return ready;
  }

  const Schedule& schedule_;
  const ScheduleCosts& costs_;
  const std::vector<int> device_of_;  // by stage
  std::vector<double> free_at_;
  std::vector<double> ends_[2];  // forward, backward (the input's part)
  SchedulePrediction made_;
};

}  // namespace

absl::StatusOr<SchedulePrediction> PredictSchedule(const Schedule& schedule,
                                                   const ScheduleCosts& costs) {
  const absl::Status checked = CheckCosts(schedule, costs);
  if (!checked.ok()) return checked;
  const Simulation simulation = Simulate(schedule, schedule.microbatches);
  CHECK(simulation.stuck.empty())
      << "schedule " << schedule.name << " is not valid";
  Clock clock(schedule, costs);
  for (const SimulatedAction& each : simulation.done) {
    clock.Take(each.device, each.action);
  }
  return clock.Sum();
}

}  // namespace tandem
