#include "parallel/schedule/validator.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "parallel/schedule/completeness.h"

namespace tandem {
namespace {

// Runs a schedule by taking each device's next action as soon as it can be
// taken. An action that only adds to what others need, and whose channel has
// room, may go at once: the order does not matter for whether all end.
class Run {
 public:
  Run(const Schedule& schedule, const ScheduleLimits& limits)
      : schedule_(schedule),
        limits_(limits),
        next_(schedule.devices(), 0),
        alive_(schedule.devices(), 0),
        peak_(schedule.devices(), 0) {
    const size_t cells =
        static_cast<size_t>(schedule.stages) * schedule.microbatches;
    done_[0].resize(cells);
    done_[1].resize(cells);
    sent_[0].resize(schedule.stages);
    sent_[1].resize(schedule.stages);
    for (int s = 0; s < schedule.stages; ++s) {
      device_of_.push_back(DeviceOfStage(schedule, s));
    }
  }

  absl::StatusOr<ScheduleFacts> ToTheEnd() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int device = 0; device < schedule_.devices(); ++device) {
        while (CanTake(device)) {
          TANDEM_RETURN_IF_ERROR(Take(device));
          moved = true;
        }
      }
    }
    TANDEM_RETURN_IF_ERROR(CheckEnded());
    return ScheduleFacts{peak_};
  }

 private:
  static bool IsForward(const Action& action) {
    return action.kind == ActionKind::kForward;
  }
  static bool Sends(const Action& action) {
    return action.kind != ActionKind::kBackwardWeight;
  }
  // The stage that gets what the action makes; -1: none.
  int Receiver(const Action& action) const {
    if (!Sends(action)) return -1;
    const int to = IsForward(action) ? action.stage + 1 : action.stage - 1;
    return to < schedule_.stages ? to : -1;
  }
  int Sender(const Action& action) const {
    if (!Sends(action)) return -1;
    const int from = IsForward(action) ? action.stage - 1 : action.stage + 1;
    return from < schedule_.stages ? from : -1;
  }
  size_t Cell(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * schedule_.microbatches + microbatch;
  }
  bool IsDone(bool forward, int stage, int microbatch) const {
    return done_[forward ? 0 : 1][Cell(stage, microbatch)];
  }
  const Action* Next(int device) const {
    const auto& actions = schedule_.actions[device];
    const size_t at = next_[device];
    return at < actions.size() ? &actions[at] : nullptr;
  }

  // What the action needs, that has not been done: "" if all has.
  std::string Missing(const Action& action) const {
    const int from = Sender(action);
    if (from >= 0 && !IsDone(IsForward(action), from, action.microbatch)) {
      return absl::StrCat(IsForward(action) ? "forward" : "backward",
                          " of microbatch ", action.microbatch, " in stage ",
                          from);
    }
    if (IsForward(action)) return "";
    if (!IsDone(true, action.stage, action.microbatch)) {
      return "its own forward";
    }
    const bool is_weight = action.kind == ActionKind::kBackwardWeight;
    if (is_weight && !IsDone(false, action.stage, action.microbatch)) {
      return "its input's part";
    }
    return "";
  }

  // Is there room for what the action sends? A channel is named by its sender.
  bool HasRoom(const Action& action) const {
    const int to = Receiver(action);
    if (to < 0 || device_of_[to] == device_of_[action.stage]) return true;
    const int waiting = sent_[IsForward(action) ? 0 : 1][action.stage];
    if (waiting < limits_.channel_capacity) return true;
    // The receiver takes it at once if that is what it would do next.
    const Action* theirs = Next(device_of_[to]);
    return limits_.channel_capacity == 0 && theirs != nullptr &&
           theirs->stage == to && theirs->microbatch == action.microbatch &&
           Sends(*theirs) && IsForward(*theirs) == IsForward(action);
  }

  bool CanTake(int device) const {
    const Action* action = Next(device);
    return action != nullptr && Missing(*action).empty() && HasRoom(*action);
  }

  absl::Status Take(int device) {
    const Action& action = *Next(device);
    ++next_[device];
    const int direction = IsForward(action) ? 0 : 1;
    if (Sends(action))
      done_[direction][Cell(action.stage, action.microbatch)] = true;
    const int from = Sender(action);
    if (from >= 0 && device_of_[from] != device) --sent_[direction][from];
    const int to = Receiver(action);
    if (to >= 0 && device_of_[to] != device) ++sent_[direction][action.stage];
    return Count(device, action);
  }

  absl::Status Count(int device, const Action& action) {
    if (IsForward(action)) ++alive_[device];
    if (action.kind == ActionKind::kBackward ||
        action.kind == ActionKind::kBackwardWeight) {
      --alive_[device];
    }
    peak_[device] = std::max(peak_[device], alive_[device]);
    if (limits_.most_activations == 0 ||
        alive_[device] <= limits_.most_activations) {
      return absl::OkStatus();
    }
    return WrongSchedule(
        schedule_, absl::StrCat("device ", device, " has ", alive_[device],
                                " activations after ", DescribeAction(action),
                                ", but may have ", limits_.most_activations));
  }

  absl::Status CheckEnded() const {
    std::vector<std::string> stuck;
    for (int device = 0; device < schedule_.devices(); ++device) {
      const Action* action = Next(device);
      if (action == nullptr) continue;
      const std::string missing = Missing(*action);
      stuck.push_back(absl::StrCat(
          "device ", device, " at ", DescribeAction(*action),
          ", which waits for ",
          missing.empty()
              ? absl::StrCat("room in the channel to stage ", Receiver(*action))
              : missing));
    }
    if (stuck.empty()) return absl::OkStatus();
    return WrongSchedule(schedule_, absl::StrCat("it does not end: ",
                                                 absl::StrJoin(stuck, "; ")));
  }

  const Schedule& schedule_;
  const ScheduleLimits limits_;
  std::vector<size_t> next_;
  std::vector<int> alive_;
  std::vector<int> peak_;
  std::vector<bool> done_[2];  // forward, backward; by cell
  std::vector<int> sent_[2];   // by sending stage: on their way
  std::vector<int> device_of_;
};

}  // namespace

absl::StatusOr<ScheduleFacts> ValidateSchedule(const Schedule& schedule,
                                               const ScheduleLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CheckCompleteness(schedule));
  return Run(schedule, limits).ToTheEnd();
}

absl::StatusOr<int> LeastChannelCapacity(const Schedule& schedule) {
  ScheduleLimits limits;
  // No channel ever holds more than every microbatch.
  limits.channel_capacity = schedule.microbatches;
  TANDEM_RETURN_IF_ERROR(ValidateSchedule(schedule, limits).status());
  while (limits.channel_capacity > 0) {
    --limits.channel_capacity;
    if (!Run(schedule, limits).ToTheEnd().ok()) {
      return limits.channel_capacity + 1;
    }
  }
  return 0;
}

}  // namespace tandem
