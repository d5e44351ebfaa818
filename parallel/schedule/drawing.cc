#include "parallel/schedule/drawing.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/drawing/axis_ticks.h"
#include "core/drawing/markup.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulation.h"

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

// "backward, input".
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
    case ActionKind::kUnshard:
      return "parameters gathered";
    case ActionKind::kReshard:
      return "parameters freed";
  }
  return "";
}

// Kinds that the prediction has, in the order of a legend.
std::vector<ActionKind> ShownKinds(const SchedulePrediction& prediction) {
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

// What a picture writes on an action of `device`.
std::string ActionLabel(const std::vector<TimedAction>& device,
                        const TimedAction& timed) {
  return ToString(timed.action, HasSeveralStages(device));
}

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
  for (const ActionKind kind : ShownKinds(prediction)) {
    absl::StrAppend(&text, ToString(Action{kind, 0, 0}, false).substr(0, 1),
                    " ", KindName(kind), "; ");
  }
  return absl::StrCat(text, "dots: waiting\n");
}

constexpr double kRow = 28;  // pixels
constexpr double kLeft = 70;
constexpr double kTop = 40;
constexpr double kWidth = 960;
constexpr double kAxis = 16;
constexpr double kCharacter = 7;
constexpr double kPaler = 0.55;
constexpr char kWaiting[] = "#eeeeee";

// The number of the action's stage among its device's.
int ChunkOnDevice(const std::vector<TimedAction>& device, int stage) {
  std::set<int> before;
  for (const TimedAction& each : device) {
    if (each.action.stage < stage) before.insert(each.action.stage);
  }
  return static_cast<int>(before.size());
}

const char* FillColour(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "#8fb8de";
    case ActionKind::kBackward:
      return "#f2b56b";
    case ActionKind::kBackwardInput:
      return "#d98a5c";
    case ActionKind::kBackwardWeight:
      return "#9c6b98";
    case ActionKind::kUnshard:
    case ActionKind::kReshard:
      break;
  }
  return "#cccccc";
}

// A bar of a row's height; `more` are further attributes.
std::string Rectangle(double x, double y, double width, const char* colour,
                      const std::string& more) {
  return absl::StrFormat(
      "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" "
      "%s stroke=\"#ffffff\"/>\n",
      x, y, width, kRow - 4, colour, more);
}

// A device's further stages are paler, as in papers.
std::string ActionBar(double x, double y, double width, ActionKind kind,
                      int chunk = 0) {
  return Rectangle(
      x, y, width, FillColour(kind),
      absl::StrFormat("fill-opacity=\"%.2f\"", std::pow(kPaler, chunk)));
}

std::string WaitingBar(double x, double y, double width) {
  return Rectangle(x, y, width, kWaiting, "class=\"waiting\"");
}

// What fits of an action's label: all of it, or the microbatch.
std::string FittingLabel(const std::vector<TimedAction>& device,
                         const TimedAction& timed, double width) {
  for (const std::string& label :
       {ActionLabel(device, timed), absl::StrCat(timed.action.microbatch)}) {
    if (width > kCharacter * static_cast<double>(label.size())) return label;
  }
  return "";
}

std::string Text(double x, double y, const std::string& text,
                 const char* attributes = "") {
  return absl::StrFormat("<text x=\"%.2f\" y=\"%.2f\"%s>%s</text>\n", x, y,
                         attributes, EscapedMarkup(text));
}

// Text that stands on no bar.
std::string Words(double x, double y, const std::string& text) {
  return Text(x, y, text, " class=\"words\"");
}

// "12, of which 3 are bubble (33.3 % of the busiest device's work)".
std::string BubbleText(const SchedulePrediction& prediction) {
  const double work = prediction.step - prediction.bubble;
  return absl::StrFormat(
      "step %g, of which %g bubble (%.1f %% of the busiest device's work)",
      prediction.step, prediction.bubble,
      work > 0 ? 100 * prediction.bubble / work : 0.0);
}

// A device's name, and its actions over a bar of waiting.
std::string DeviceRow(size_t number, const std::vector<TimedAction>& device,
                      double scale) {
  const double y = kTop + kRow * static_cast<double>(number);
  std::string svg =
      absl::StrCat(Words(8, y + kRow / 2 + 2, absl::StrCat("device ", number)),
                   WaitingBar(kLeft, y, kWidth));
  for (const TimedAction& each : device) {
    const double x = kLeft + each.begin * scale;
    const double width = (each.end - each.begin) * scale;
    const int chunk = ChunkOnDevice(device, each.action.stage);
    const std::string label = FittingLabel(device, each, width);
    absl::StrAppend(&svg, ActionBar(x, y, width, each.action.kind, chunk),
                    label.empty() ? "" : Text(x + 3, y + kRow / 2 + 2, label));
  }
  return svg;
}

std::string Axis(const SchedulePrediction& prediction, double scale) {
  const double y =
      kTop + kRow * static_cast<double>(prediction.devices.size()) + 10;
  std::string svg = Words(8, y, "time");
  for (const double tick : AxisTicks(prediction.step)) {
    absl::StrAppend(&svg, Words(kLeft + tick * scale, y, absl::StrCat(tick)));
  }
  return svg;
}

std::string Legend(const SchedulePrediction& prediction, double y) {
  std::string svg;
  double x = kLeft;
  for (const ActionKind kind : ShownKinds(prediction)) {
    absl::StrAppend(&svg, ActionBar(x, y, kRow, kind),
                    Words(x + kRow + 6, y + kRow / 2 + 3, KindName(kind)));
    x += 150;
  }
  absl::StrAppend(&svg, WaitingBar(x, y, kRow),
                  Words(x + kRow + 6, y + kRow / 2 + 3, "waiting"));
  x += 110;
  const bool several = std::any_of(prediction.devices.begin(),
                                   prediction.devices.end(), HasSeveralStages);
  if (several) {
    absl::StrAppend(
        &svg, Words(x, y + kRow / 2 + 3, "paler: the device's further stages"));
  }
  return svg;
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

std::string DrawSvg(const std::string& title,
                    const SchedulePrediction& prediction) {
  const double scale = prediction.step > 0 ? kWidth / prediction.step : 0;
  const double height =
      kTop + kRow * static_cast<double>(prediction.devices.size() + 2) + kAxis;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
      "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n"
      "<rect class=\"ground\" width=\"100%%\" height=\"100%%\" "
      "fill=\"#ffffff\"/>\n",
      kLeft + kWidth + 20, height, kLeft + kWidth + 20, height);
  absl::StrAppend(&svg,
                  Words(kLeft, kTop / 2,
                        absl::StrCat(title, ": ", BubbleText(prediction))));
  for (size_t d = 0; d < prediction.devices.size(); ++d) {
    absl::StrAppend(&svg, DeviceRow(d, prediction.devices[d], scale));
  }
  absl::StrAppend(&svg, Axis(prediction, scale),
                  Legend(prediction, height - kRow - 6), "</svg>\n");
  return svg;
}

}  // namespace tandem
