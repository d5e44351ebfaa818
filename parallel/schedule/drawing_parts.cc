#include "parallel/schedule/drawing_parts.h"

#include <algorithm>
#include <cmath>

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

std::vector<double> AxisTicks(double step) {
  if (!(step > 0)) return {0};
  double unit = std::pow(10, std::floor(std::log10(step / 10)));
  for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if (step / unit <= 10) break;
    unit *= factor;
  }
  std::vector<double> ticks;
  for (int i = 0; i * unit <= step * (1 + 1e-9); ++i) ticks.push_back(i * unit);
  return ticks;
}

}  // namespace tandem
