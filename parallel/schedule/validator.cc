#include "parallel/schedule/validator.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "parallel/schedule/completeness.h"
#include "parallel/schedule/simulation.h"

namespace tandem {
namespace {

std::string DescribeMissing(const StuckAction& stuck, int stages) {
  const Action& action = stuck.action;
  if (!stuck.missing.has_value()) {
    return absl::StrCat("room in the channel to stage ",
                        ReceiverOf(action, stages));
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
  ScheduleFacts facts{std::vector<int>(schedule.actions.size(), 0)};
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
