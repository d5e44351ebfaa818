// A schedule as an SVG image.

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/axis_ticks.h"
#include "parallel/schedule/drawing.h"
#include "parallel/schedule/drawing_parts.h"

namespace tandem {
namespace {

constexpr double kRow = 28;  // pixels
constexpr double kLeft = 70;
constexpr double kTop = 40;
constexpr double kWidth = 960;
constexpr double kAxis = 16;
constexpr double kCharacter = 7;
constexpr double kPaler = 0.55;
constexpr char kWaiting[] = "#eeeeee";

// Of the action's stage among those of its device.
int ChunkOf(const std::vector<TimedAction>& device, int stage) {
  std::set<int> before;
  for (const TimedAction& each : device) {
    if (each.action.stage < stage) before.insert(each.action.stage);
  }
  return static_cast<int>(before.size());
}

const char* ColourOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "#8fb8de";
    case ActionKind::kBackward:
      return "#f2b56b";
    case ActionKind::kBackwardInput:
      return "#d98a5c";
    case ActionKind::kBackwardWeight:
      return "#9c6b98";
  }
  return "#cccccc";
}

// A device's further stages are paler, as in papers.
std::string Rectangle(double x, double y, double width, const char* colour,
                      int chunk = 0) {
  return absl::StrFormat(
      "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" "
      "fill-opacity=\"%.2f\" stroke=\"#ffffff\"/>\n",
      x, y, width, kRow - 4, colour, std::pow(kPaler, chunk));
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

std::string Words(double x, double y, const std::string& text) {
  return absl::StrFormat(
      "<text x=\"%.2f\" y=\"%.2f\">%s</text>\n", x, y,
      absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}}));
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
                   Rectangle(kLeft, y, kWidth, kWaiting));
  for (const TimedAction& each : device) {
    const double x = kLeft + each.begin * scale;
    const double width = (each.end - each.begin) * scale;
    const int chunk = ChunkOf(device, each.action.stage);
    const std::string label = FittingLabel(device, each, width);
    absl::StrAppend(&svg,
                    Rectangle(x, y, width, ColourOf(each.action.kind), chunk),
                    label.empty() ? "" : Words(x + 3, y + kRow / 2 + 2, label));
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
  for (const ActionKind kind : KindsOf(prediction)) {
    absl::StrAppend(&svg, Rectangle(x, y, kRow, ColourOf(kind)),
                    Words(x + kRow + 6, y + kRow / 2 + 3, KindName(kind)));
    x += 150;
  }
  absl::StrAppend(&svg, Rectangle(x, y, kRow, kWaiting),
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

std::string DrawSvg(const std::string& title,
                    const SchedulePrediction& prediction) {
  const double scale = prediction.step > 0 ? kWidth / prediction.step : 0;
  const double height =
      kTop + kRow * static_cast<double>(prediction.devices.size() + 2) + kAxis;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
      "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      kLeft + kWidth + 20, height);
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
