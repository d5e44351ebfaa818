#include "parallel/schedule/schedule.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

char Letter(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return 'F';
    case ActionKind::kBackward:
      return 'B';
    case ActionKind::kBackwardInput:
      return 'I';
    case ActionKind::kBackwardWeight:
      return 'W';
    case ActionKind::kUnshard:
      return 'U';
    case ActionKind::kReshard:
      return 'R';
  }
  return '?';
}

}  // namespace

int DeviceOfStage(const Schedule& schedule, int stage) {
  for (size_t device = 0; device < schedule.stages_of.size(); ++device) {
    const std::vector<int>& stages = schedule.stages_of[device];
    if (std::find(stages.begin(), stages.end(), stage) != stages.end()) {
      return static_cast<int>(device);
    }
  }
  return -1;
}

std::vector<int> DevicesOfStages(const Schedule& schedule) {
  std::vector<int> devices;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    devices.push_back(DeviceOfStage(schedule, stage));
  }
  return devices;
}

std::vector<std::vector<Action>> ActionsByStage(const Schedule& schedule,
                                                int microbatches) {
  std::vector<std::vector<Action>> by_stage(
      static_cast<size_t>(schedule.stages));
  for (const auto& actions : schedule.actions) {
    for (const Action& each : actions) {
      if (!Computes(each.kind) || each.microbatch >= microbatches) continue;
      by_stage[static_cast<size_t>(each.stage)].push_back(each);
    }
  }
  return by_stage;
}

std::vector<Action> LastGradients(const Schedule& schedule, int microbatches) {
  std::vector<Action> last;
  // Each forward has its backward behind it.
  for (const auto& actions : ActionsByStage(schedule, microbatches)) {
    last.push_back(actions.empty() ? Action() : actions.back());
  }
  return last;
}

std::vector<Action> ForwardActions(const Schedule& schedule, int device) {
  std::vector<int> stages = schedule.stages_of[static_cast<size_t>(device)];
  std::sort(stages.begin(), stages.end());
  std::vector<Action> forwards;
  for (int stage : stages) {
    for (int m = 0; m < schedule.microbatches; ++m) {
      forwards.push_back({ActionKind::kForward, stage, m});
    }
  }
  return forwards;
}

bool SplitsBackward(const Schedule& schedule) {
  for (const auto& actions : schedule.actions) {
    for (const Action& each : actions) {
      if (each.kind == ActionKind::kBackwardWeight) return true;
    }
  }
  return false;
}

GradientsCome OrderOfGradients(const Schedule& schedule) {
  bool ascends = true, descends = true;
  const auto note = [&](int microbatch, int* before) {
    if (*before >= 0) {
      ascends = ascends && microbatch > *before;
      descends = descends && microbatch < *before;
    }
    *before = microbatch;
  };
  for (const auto& actions : ActionsByStage(schedule, schedule.microbatches)) {
    int input = -1, weights = -1;  // the microbatch before
    for (const Action& each : actions) {
      if (GivesInputGradient(each.kind)) note(each.microbatch, &input);
      if (EndsBackward(each.kind)) note(each.microbatch, &weights);
    }
  }
  if (ascends) return GradientsCome::kAscending;
  return descends ? GradientsCome::kDescending : GradientsCome::kInNoOrder;
}

std::string ToString(const Action& action, bool with_stage) {
  std::string text;
  if (with_stage) absl::StrAppend(&text, action.stage);
  text += Letter(action.kind);
  if (Computes(action.kind)) absl::StrAppend(&text, action.microbatch);
  return text;
}

std::string ToString(const Schedule& schedule) {
  bool with_stage = false;  // unless each is its device's number
  for (size_t device = 0; device < schedule.actions.size(); ++device) {
    for (const Action& each : schedule.actions[device]) {
      with_stage = with_stage || each.stage != static_cast<int>(device);
    }
  }
  return absl::StrJoin(
      schedule.actions, "\n", [&](std::string* out, const auto& actions) {
        absl::StrAppend(
            out, absl::StrJoin(actions, " ",
                               [&](std::string* text, const Action& action) {
                                 text->append(ToString(action, with_stage));
                               }));
      });
}

}  // namespace tandem
