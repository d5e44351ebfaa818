#include "parallel/schedule/drawing.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/axis_ticks.h"
#include "parallel/schedule/drawing_parts.h"

namespace tandem {
namespace {

// "time       0  1  2": where there is room.
std::string AxisText(const SchedulePrediction& prediction, double scale) {
  std::string line;
  for (const double tick : AxisTicks(prediction.step)) {
    const auto at = static_cast<size_t>(std::lround(tick * scale));
    if (!line.empty() && at <= line.size()) continue;
    line.resize(at, ' ');
    absl::StrAppend(&line, tick);
  }
  return absl::StrCat("time       ", line, "\n");
}

std::string LegendText(const SchedulePrediction& prediction) {
  std::string text;
  for (const ActionKind kind : KindsOf(prediction)) {
    absl::StrAppend(&text, ToString(Action{kind, 0, 0}, false).substr(0, 1),
                    " ", KindName(kind), "; ");
  }
  return absl::StrCat(text, "dots: waiting\n");
}

}  // namespace

std::string DrawText(const SchedulePrediction& prediction, int columns) {
  const double scale = prediction.step > 0 ? columns / prediction.step : 0;
  std::string text;
  for (size_t d = 0; d < prediction.devices.size(); ++d) {
    std::string line(columns, '.');
    for (const TimedAction& each : prediction.devices[d]) {
      const auto from = static_cast<size_t>(std::lround(each.begin * scale));
      const auto to = static_cast<size_t>(std::lround(each.end * scale));
      std::string label = ActionLabel(prediction.devices[d], each);
      label.resize(to - from, ' ');
      if (!label.empty()) label.back() = '|';
      line.replace(from, label.size(), label);
    }
    absl::StrAppendFormat(&text, "device %-3d %s\n", d, line);
  }
  absl::StrAppend(&text, AxisText(prediction, scale), LegendText(prediction));
  return text;
}

std::string DrawTrace(const SchedulePrediction& prediction) {
  nlohmann::json events = nlohmann::json::array();
  for (size_t d = 0; d < prediction.devices.size(); ++d) {
    events.push_back({{"ph", "M"},
                      {"pid", 0},
                      {"tid", d},
                      {"name", "thread_name"},
                      {"args", {{"name", absl::StrCat("device ", d)}}}});
    for (const TimedAction& each : prediction.devices[d]) {
      events.push_back({{"ph", "X"},
                        {"pid", 0},
                        {"tid", d},
                        {"name", ToString(each.action, /*with_stage=*/true)},
                        {"cat", KindName(each.action.kind)},
                        {"ts", each.begin * 1000},
                        {"dur", (each.end - each.begin) * 1000}});
    }
  }
  return nlohmann::json{{"traceEvents", events}}.dump(1) + "\n";
}

}  // namespace tandem
