#include "parallel/schedule/validator.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulation.h"
#include "parallel/schedule/unshards.h"

namespace tandem {
namespace {

// "F3 of stage 1".
std::string DescribeAction(const Action& action) {
  return absl::StrCat(ToString(action, /*with_stage=*/false), " of stage ",
                      action.stage);
}

// InvalidArgument, with the schedule's name.
absl::Status WrongSchedule(const Schedule& schedule, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("schedule ", schedule.name, ": ", what));
}

absl::Status CheckStages(const Schedule& schedule) {
  if (schedule.actions.empty() ||
      schedule.stages_of.size() != schedule.actions.size() ||
      schedule.stages < 1 || schedule.microbatches < 1) {
    return WrongSchedule(
        schedule,
        "it needs a list of stages and of actions for each device, "
        "and at least one device, stage and microbatch");
  }
  std::vector<int> holders(schedule.stages, 0);
  for (const auto& stages : schedule.stages_of) {
    for (int stage : stages) {
      if (stage < 0 || stage >= schedule.stages) {
        return WrongSchedule(schedule,
                             absl::StrCat("there is no stage ", stage));
      }
      ++holders[stage];
    }
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    if (holders[stage] == 1) continue;
    return WrongSchedule(
        schedule, absl::StrCat("stage ", stage, " is on ", holders[stage],
                               " devices, not on 1"));
  }
  return absl::OkStatus();
}

// One wrong number (a microbatch 1000000) makes a schedule of many actions that
// are not there: said before memory is taken for each.
absl::Status CheckSize(const Schedule& schedule) {
  constexpr int64_t kMissing = 16;  // actions for one that is there
  const int64_t needed = int64_t{2} * schedule.stages * schedule.microbatches;
  int64_t there = 0;
  Action last;  // of the greatest microbatch
  for (const auto& actions : schedule.actions) {
    there += static_cast<int64_t>(actions.size());
    for (const Action& each : actions) {
      if (each.microbatch > last.microbatch) last = each;
    }
  }
  if (needed / kMissing <= there) return absl::OkStatus();
  return WrongSchedule(
      schedule,
      absl::StrCat(schedule.stages, " stages and ", schedule.microbatches,
                   " microbatches (of which ", DescribeAction(last),
                   " is the last) need ", needed,
                   " actions at least, but there are ", there));
}

// How often each thing is done to one microbatch in one stage.
struct Counts {
  int forward = 0;
  int whole = 0;
  int input = 0;
  int weight = 0;

  void Add(ActionKind kind) {
    switch (kind) {
      case ActionKind::kForward:
        ++forward;
        break;
      case ActionKind::kBackward:
        ++whole;
        break;
      case ActionKind::kBackwardInput:
        ++input;
        break;
      case ActionKind::kBackwardWeight:
        ++weight;
        break;
      case ActionKind::kUnshard:
      case ActionKind::kReshard:
        break;
    }
  }
  bool IsComplete() const {
    return forward == 1 && ((whole == 1 && input == 0 && weight == 0) ||
                            (whole == 0 && input == 1 && weight == 1));
  }
};

absl::Status CheckPlace(const Schedule& schedule,
                        const std::vector<int>& device_of, int device,
                        const Action& action) {
  if (action.stage >= 0 && action.stage < schedule.stages &&
      action.microbatch >= 0 && action.microbatch < schedule.microbatches &&
      device_of[action.stage] == device) {
    return absl::OkStatus();
  }
  return WrongSchedule(
      schedule,
      absl::StrCat("device ", device, " has ", DescribeAction(action),
                   ", which it cannot do: it holds stages ",
                   absl::StrJoin(schedule.stages_of[device], ", "),
                   ", and there are ", schedule.microbatches, " microbatches"));
}

absl::Status CheckComplete(const Schedule& schedule) {
  std::vector<std::vector<Counts>> counts(
      schedule.stages, std::vector<Counts>(schedule.microbatches));
  const std::vector<int> device_of = DevicesOfStages(schedule);
  for (int device = 0; device < schedule.devices(); ++device) {
    for (const Action& action : schedule.actions[device]) {
      TANDEM_RETURN_IF_ERROR(CheckPlace(schedule, device_of, device, action));
      counts[action.stage][action.microbatch].Add(action.kind);
    }
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (int m = 0; m < schedule.microbatches; ++m) {
      const Counts& found = counts[stage][m];
      if (found.IsComplete()) continue;
      return WrongSchedule(
          schedule,
          absl::StrCat("stage ", stage, " does microbatch ", m, "'s forward ",
                       found.forward, " times, backward ", found.whole,
                       " times, its parts ", found.input, " and ", found.weight,
                       " times: each must be once, and backward either whole "
                       "or in both parts"));
    }
  }
  return absl::OkStatus();
}

// InvalidArgument names what is missing, or done twice, or elsewhere. Takes no
// more memory than a schedule that is complete but for a few actions.
absl::Status CheckCompleteness(const Schedule& schedule) {
  TANDEM_RETURN_IF_ERROR(CheckStages(schedule));
  TANDEM_RETURN_IF_ERROR(CheckSize(schedule));
  return CheckComplete(schedule);
}

std::string DescribeMissing(const StuckAction& stuck, int stages) {
  const Action& action = stuck.action;
  if (!stuck.missing.has_value()) {
    return absl::StrCat("space in the channel to stage ",
                        ReceivingStage(action, stages));
  }
  if (stuck.missing->stage != action.stage) {
    return absl::StrCat(stuck.missing->is_forward ? "forward" : "backward",
                        " of microbatch ", action.microbatch, " in stage ",
                        stuck.missing->stage);
  }
  return stuck.missing->is_forward ? "its own forward" : "its input's part";
}

absl::Status CheckEnded(const Schedule& schedule,
                        const std::vector<StuckAction>& stuck) {
  if (stuck.empty()) return absl::OkStatus();
  return WrongSchedule(
      schedule,
      absl::StrCat(
          "it does not end: ",
          absl::StrJoin(
              stuck, "; ", [&](std::string* out, const StuckAction& each) {
                absl::StrAppend(out, "device ", each.device, " at ",
                                DescribeAction(each.action),
                                ", which waits for ",
                                DescribeMissing(each, schedule.stages));
              })));
}

absl::Status CheckMemory(const Schedule& schedule,
                         const std::vector<SimulatedAction>& actions,
                         int most_activations) {
  if (most_activations == 0) return absl::OkStatus();
  for (const SimulatedAction& each : actions) {
    if (each.kept <= most_activations) continue;
    return WrongSchedule(
        schedule,
        absl::StrCat("device ", each.device, " has ", each.kept,
                     " activations after ", DescribeAction(each.action),
                     ", but may have ", most_activations));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScheduleFacts> ValidateSchedule(const Schedule& schedule,
                                               const ScheduleLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CheckCompleteness(schedule));
  const Simulation simulation =
      Simulate(schedule, {limits.channel_capacity, {}, 0});
  TANDEM_RETURN_IF_ERROR(
      CheckMemory(schedule, simulation.done, limits.most_activations));
  TANDEM_RETURN_IF_ERROR(CheckEnded(schedule, simulation.stuck));
  ScheduleFacts facts{std::vector<int>(schedule.actions.size(), 0), {}};
  TANDEM_RETURN_IF_ERROR(CheckUnshards(schedule, limits.max_unsharded_stages,
                                       &facts.peak_unsharded));
  for (const SimulatedAction& each : simulation.done) {
    int& peak = facts.peak_activations[each.device];
    peak = std::max(peak, each.kept);
  }
  return facts;
}

absl::StatusOr<int> LeastChannelCapacity(const Schedule& schedule) {
  // No channel ever holds more than every microbatch.
  int capacity = schedule.microbatches;
  TANDEM_RETURN_IF_ERROR(ValidateSchedule(schedule, {capacity, 0}).status());
  while (capacity > 0 &&
         Simulate(schedule, {capacity - 1, {}, 0}).stuck.empty()) {
    --capacity;
  }
  return capacity;
}

}  // namespace tandem
