#include "parallel/schedule/drawing_parts.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr ActionKind kKinds[] = {ActionKind::kForward, ActionKind::kBackward,
                                 ActionKind::kBackwardInput,
                                 ActionKind::kBackwardWeight};

bool Has(const SchedulePrediction& prediction, ActionKind kind) {
  for (const auto& device : prediction.devices) {
    for (const TimedAction& each : device) {
      if (each.action.kind == kind) return true;
    }
  }
  return false;
}

}  // namespace

const char* KindName(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kBackwardInput:
      return "backward, input";
    case ActionKind::kBackwardWeight:
      return "backward, weights";
  }
  return "";
}

std::vector<ActionKind> KindsOf(const SchedulePrediction& prediction) {
  std::vector<ActionKind> kinds;
  for (const ActionKind kind : kKinds) {
    if (Has(prediction, kind)) kinds.push_back(kind);
  }
  return kinds;
}

bool HasSeveralStages(const std::vector<TimedAction>& device) {
  return std::any_of(device.begin(), device.end(), [&](const auto& each) {
    return each.action.stage != device.front().action.stage;
  });
}

std::string ActionLabel(const std::vector<TimedAction>& device,
                        const TimedAction& timed) {
  return ToString(timed.action, HasSeveralStages(device));
}

}  // namespace tandem
