#include "parallel/schedule/prediction.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr double kNotYet = -1;

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

class Clock {
 public:
  Clock(const Schedule& schedule, const ScheduleCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        next_(schedule.devices(), 0),
        free_at_(schedule.devices(), 0) {
    const size_t cells =
        static_cast<size_t>(schedule.stages) * schedule.microbatches;
    ends_[0].assign(cells, kNotYet);
    ends_[1].assign(cells, kNotYet);
    for (int s = 0; s < schedule.stages; ++s) {
      device_of_.push_back(DeviceOfStage(schedule, s));
    }
    made_.devices.resize(schedule.devices());
    made_.busy.resize(schedule.devices(), 0);
  }

  SchedulePrediction Run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int device = 0; device < schedule_.devices(); ++device) {
        while (TakeNext(device)) moved = true;
      }
    }
    for (int device = 0; device < schedule_.devices(); ++device) {
      CHECK_EQ(next_[device], schedule_.actions[device].size())
          << "schedule " << schedule_.name << " is not valid";
    }
    Sum();
    return made_;
  }

 private:
  double& End(bool forward, int stage, int microbatch) {
    return ends_[forward ? 0 : 1]
                [static_cast<size_t>(stage) * schedule_.microbatches +
                 microbatch];
  }

  // When what the action needs is there; kNotYet if that is not known.
  double ReadyAt(const Action& action) {
    const bool forward = action.kind == ActionKind::kForward;
    const int m = action.microbatch;
    if (action.kind == ActionKind::kBackwardWeight) {
      return End(false, action.stage, m);
    }
    const double own = forward ? 0 : End(true, action.stage, m);
    const int from = forward ? action.stage - 1 : action.stage + 1;
    if (own == kNotYet || from < 0 || from >= schedule_.stages) return own;
    const double theirs = End(forward, from, m);
    if (theirs == kNotYet) return kNotYet;
    const bool crosses = device_of_[from] != device_of_[action.stage];
    return std::max(own, theirs + (crosses ? costs_.transfer : 0));
  }

  bool TakeNext(int device) {
    const auto& actions = schedule_.actions[device];
    if (next_[device] == actions.size()) return false;
    const Action& action = actions[next_[device]];
    const double ready = ReadyAt(action);
    if (ready == kNotYet) return false;
    TimedAction timed = {action, std::max(ready, free_at_[device]), 0};
    const double duration = DurationOf(action, costs_.stages[action.stage]);
    timed.end = timed.begin + duration;
    free_at_[device] = timed.end;
    made_.busy[device] += duration;
    if (action.kind != ActionKind::kBackwardWeight) {
      End(action.kind == ActionKind::kForward, action.stage,
          action.microbatch) = timed.end;
    }
    made_.devices[device].push_back(timed);
    ++next_[device];
    return true;
  }

  void Sum() {
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
  }

  const Schedule& schedule_;
  const ScheduleCosts& costs_;
  std::vector<size_t> next_;
  std::vector<double> free_at_;
  std::vector<double> ends_[2];  // forward, backward (the input's part)
  std::vector<int> device_of_;
  SchedulePrediction made_;
};

}  // namespace

absl::StatusOr<SchedulePrediction> PredictSchedule(const Schedule& schedule,
                                                   const ScheduleCosts& costs) {
  const absl::Status checked = CheckCosts(schedule, costs);
  if (!checked.ok()) return checked;
  return Clock(schedule, costs).Run();
}

}  // namespace tandem
