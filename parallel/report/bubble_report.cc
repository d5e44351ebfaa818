#include "parallel/report/bubble_report.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/text_table.h"

namespace tandem {
namespace {

using Row = std::vector<std::string>;

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.2f", 1e3 * seconds);
}

// What is left of the mean step when the parts of it that are known are taken
// away: a device has ended, and others have not.
double IdleAtEnd(const DeviceTimes& device, double step) {
  const double known =
      device.busy() + device.input_wait + device.gradient_wait + device.copying;
  return std::max(0.0, step - known / std::max(device.steps, 1.0));
}

std::string DeviceTable(const Schedule& schedule, const PipelineTimes& times) {
  std::vector<Row> rows = {{"device", "stages", "forward", "backward",
                            "weights", "input wait", "gradient wait", "copying",
                            "idle at end", "busy"}};
  const double step = times.StepSeconds();
  for (size_t d = 0; d < times.devices().size(); ++d) {
    const DeviceTimes& device = times.devices()[d];
    const double steps = std::max(device.steps, 1.0);
    const double busy = step > 0 ? device.busy() / steps / step : 0;
    rows.push_back({absl::StrCat(d), absl::StrJoin(schedule.stages_of[d], ","),
                    Milliseconds(device.forward / steps),
                    Milliseconds(device.backward / steps),
                    Milliseconds(device.weights / steps),
                    Milliseconds(device.input_wait / steps),
                    Milliseconds(device.gradient_wait / steps),
                    Milliseconds(device.copying / steps),
                    Milliseconds(IdleAtEnd(device, step)),
                    absl::StrFormat("%.1f %%", 100 * busy)});
  }
  return TextTable(rows);
}

bool SplitsBackward(const PipelineTimes& times) {
  return std::any_of(
      times.stages().begin(), times.stages().end(),
      [](const StageTimes& each) { return each.backward_input > 0; });
}

std::string StageTable(const Schedule& schedule, const PipelineTimes& times) {
  const bool splits = SplitsBackward(times);
  Row head = {"stage", "device", "forward", "backward"};
  if (splits) head = {"stage", "device", "forward", "input", "weights"};
  head.push_back("together");
  std::vector<Row> rows = {head};
  const std::vector<StageCost> costs = times.StageCosts();
  const std::vector<int> device_of = DevicesOfStages(schedule);
  for (size_t s = 0; s < costs.size(); ++s) {
    const double backward = costs[s].backward_input + costs[s].backward_weight;
    Row row = {absl::StrCat(s), absl::StrCat(device_of[s]),
               Milliseconds(costs[s].forward),
               Milliseconds(splits ? costs[s].backward_input : backward)};
    if (splits) row.push_back(Milliseconds(costs[s].backward_weight));
    row.push_back(Milliseconds(costs[s].forward + backward));
    rows.push_back(row);
  }
  return TextTable(rows);
}

double BusiestOf(const PipelineTimes& times) {
  double busiest = 0;
  for (const DeviceTimes& device : times.devices()) {
    busiest = std::max(busiest, device.busy() / std::max(device.steps, 1.0));
  }
  return busiest;
}

absl::StatusOr<double> IdealBubble(const Schedule& schedule,
                                   const ScheduleCosts& costs) {
  ScheduleCosts ideal = WithEqualStages(costs);
  ideal.transfer = 0;
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction predicted,
                          PredictSchedule(schedule, ideal));
  return predicted.step > 0 ? predicted.bubble / predicted.step : 0;
}

std::string TextOf(const Schedule& schedule, const PipelineTimes& times,
                   const BubbleReport& report) {
  return absl::StrFormat(
      "%s: %d stages on %d devices, %d microbatches; means of %d steps\n\n"
      "ms a step\n%s\n"
      "ms a microbatch\n%s\n"
      "step     %s ms; predicted from the stages' times: %s ms\n"
      "bubble   %.1f %% of the step is beyond what the busiest device "
      "computes; predicted: %.1f %%; with equal stages: %.1f %%\n"
      "advice   %s\n",
      schedule.name, schedule.stages, schedule.devices(), schedule.microbatches,
      times.steps(), DeviceTable(schedule, times), StageTable(schedule, times),
      Milliseconds(report.step), Milliseconds(report.predicted),
      100 * report.measured_bubble, 100 * report.predicted_bubble,
      100 * report.ideal_bubble, report.advice.text);
}

}  // namespace

absl::StatusOr<BubbleReport> ReportBubbles(const Schedule& schedule,
                                           const PipelineTimes& times,
                                           const AdviceLimits& limits) {
  if (times.devices().size() != schedule.actions.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the times of ", times.devices().size(), " devices are not those of ",
        schedule.name, " on ", schedule.devices()));
  }
  if (times.steps() == 0) {
    return absl::FailedPreconditionError(
        "no step of the pipeline was measured: the first ones do not count");
  }
  const ScheduleCosts costs = {times.StageCosts(), times.MessageSeconds()};
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction predicted,
                          PredictSchedule(schedule, costs));
  BubbleReport report;
  report.step = times.StepSeconds();
  report.predicted = predicted.step;
  if (report.step > 0 && predicted.step > 0) {
    report.measured_bubble = 1 - BusiestOf(times) / report.step;
    report.predicted_bubble = predicted.bubble / predicted.step;
  }
  TANDEM_ASSIGN_OR_RETURN(report.ideal_bubble, IdealBubble(schedule, costs));
  TANDEM_ASSIGN_OR_RETURN(report.advice, AdviseOn(schedule, costs, limits));
  report.text = TextOf(schedule, times, report);
  return report;
}

}  // namespace tandem
