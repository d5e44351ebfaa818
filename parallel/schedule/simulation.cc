#include "parallel/schedule/simulation.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr double kNotYet = -1;

class Simulator {
 public:
  Simulator(const Schedule& schedule, const SimulationOptions& options)
      : schedule_(schedule),
        options_(options),
        device_of_(DevicesOfStages(schedule)),
        next_(schedule.actions.size(), 0),
        free_at_(schedule.actions.size(), 0),
        kept_(schedule.actions.size(), 0) {
    const size_t cells =
        static_cast<size_t>(schedule.stages) * schedule.microbatches;
    for (auto& direction : ends_) direction.resize(cells, kNotYet);
    for (auto& direction : sent_) direction.resize(schedule.stages);
  }

  Simulation Run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int device = 0; device < schedule_.devices(); ++device) {
        while (CanTake(device)) {
          Take(device);
          moved = true;
        }
      }
    }
    for (int device = 0; device < schedule_.devices(); ++device) {
      const Action* action = Next(device);
      if (action == nullptr) continue;
      made_.stuck.push_back({device, *action, Missing(*action)});
    }
    return std::move(made_);
  }

 private:
  static size_t DirectionIndex(bool is_forward) { return is_forward ? 0 : 1; }

  size_t Cell(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * schedule_.microbatches + microbatch;
  }

  const Action* Next(int device) const {
    const auto& actions = schedule_.actions[device];
    const size_t at = next_[device];
    return at < actions.size() ? &actions[at] : nullptr;
  }

  double End(const Prerequisite& of, int microbatch) const {
    return ends_[DirectionIndex(of.is_forward)][Cell(of.stage, microbatch)];
  }

  std::optional<Prerequisite> Missing(const Action& action) const {
    for (const Prerequisite& each :
         ActionPrerequisites(action, schedule_.stages)) {
      if (End(each, action.microbatch) == kNotYet) return each;
    }
    return std::nullopt;
  }

  // Would the device take, as its next action, what this one sends?
  bool IsAwaited(const Action& action, int device) const {
    const Action* theirs = Next(device);
    if (theirs == nullptr || theirs->microbatch != action.microbatch) {
      return false;
    }
    const auto needs = ActionPrerequisites(*theirs, schedule_.stages);
    return std::any_of(needs.begin(), needs.end(), [&](const auto& each) {
      return each.stage == action.stage &&
             each.is_forward == IsForward(action.kind);
    });
  }

  // For what the action sends? A channel is named by its sender.
  bool HasRoom(const Action& action) const {
    const int to = ReceivingStage(action, schedule_.stages);
    if (to < 0 || device_of_[to] == device_of_[action.stage]) return true;
    const int waiting =
        sent_[DirectionIndex(IsForward(action.kind))][action.stage];
    return waiting < options_.channel_capacity ||
           (options_.channel_capacity == 0 &&
            IsAwaited(action, device_of_[to]));
  }

  bool CanTake(int device) const {
    const Action* action = Next(device);
    return action != nullptr && !Missing(*action).has_value() &&
           HasRoom(*action);
  }

  void Take(int device) {
    const Action& action = *Next(device);
    ++next_[device];
    double begin = free_at_[device];
    for (const Prerequisite& each :
         ActionPrerequisites(action, schedule_.stages)) {
      const bool crosses = device_of_[each.stage] != device;
      if (crosses) --sent_[DirectionIndex(each.is_forward)][each.stage];
      begin = std::max(begin, End(each, action.microbatch) +
                                  (crosses ? options_.transfer : 0));
    }
    const double duration = options_.duration ? options_.duration(action) : 0;
    free_at_[device] = begin + duration;
    if (IsForward(action.kind)) ++kept_[device];
    if (EndsBackward(action.kind)) --kept_[device];
    made_.done.push_back(
        {device, action, begin, free_at_[device], kept_[device]});
    HandOver(device, action);
  }

  void HandOver(int device, const Action& action) {
    if (!IsForward(action.kind) && !GivesInputGradient(action.kind)) return;
    const size_t direction = DirectionIndex(IsForward(action.kind));
    ends_[direction][Cell(action.stage, action.microbatch)] = free_at_[device];
    const int to = ReceivingStage(action, schedule_.stages);
    if (to >= 0 && device_of_[to] != device) ++sent_[direction][action.stage];
  }

  const Schedule& schedule_;
  const SimulationOptions& options_;
  const std::vector<int> device_of_;  // by stage
  std::vector<size_t> next_;
  std::vector<double> free_at_;
  std::vector<int> kept_;
  std::vector<double> ends_[2];  // forward, backward (input's part); by cell
  std::vector<int> sent_[2];     // by sending stage: on their way
  Simulation made_;
};

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
    case ActionKind::kUnshard:
    case ActionKind::kReshard:
      return 0;
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

absl::InlinedVector<Prerequisite, 2> ActionPrerequisites(const Action& action,
                                                         int stages) {
  const int stage = action.stage;
  switch (action.kind) {
    case ActionKind::kForward:
      if (stage == 0) return {};
      return {{true, stage - 1}};
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      if (stage + 1 == stages) return {{true, stage}};
      return {{false, stage + 1}, {true, stage}};
    case ActionKind::kBackwardWeight:
      return {{true, stage}, {false, stage}};
    case ActionKind::kUnshard:
    case ActionKind::kReshard:
      return {};
  }
  return {};
}

int ReceivingStage(const Action& action, int stages) {
  if (IsForward(action.kind)) {
    return action.stage + 1 < stages ? action.stage + 1 : -1;
  }
  return GivesInputGradient(action.kind) ? action.stage - 1 : -1;
}

Simulation Simulate(const Schedule& schedule,
                    const SimulationOptions& options) {
  return Simulator(schedule, options).Run();
}

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
    if (!Computes(each.action.kind)) continue;
    made.devices[each.device].push_back({each.action, each.begin, each.end});
    made.busy[each.device] += duration(each.action);
  }
  Sum(made);
  return made;
}

}  // namespace tandem
