#include "parallel/report/bubble_report.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/text_table.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/validator.h"

namespace tandem {
namespace {

constexpr double kLeastGain = 0.03;

double MicrobatchTime(const StageCost& cost) {
  return cost.forward + cost.backward_input + cost.backward_weight;
}

void Add(StageCost& sum, const StageCost& cost, double factor = 1) {
  sum.forward += factor * cost.forward;
  sum.backward_input += factor * cost.backward_input;
  sum.backward_weight += factor * cost.backward_weight;
}

std::string SaysGain(double before, double after) {
  return absl::StrFormat(
      "a step would take %.2f ms instead of %.2f (%.1f %% less)", 1e3 * after,
      1e3 * before, 100 * (1 - after / before));
}

// Keeps the better of two.
void Offer(double before, double after, AdviceKind kind,
           const std::string& text, Advice& best) {
  const double gain = before > 0 ? 1 - after / before : 0;
  if (gain <= best.gain) return;
  best = {kind, gain, absl::StrCat(text, SaysGain(before, after))};
}

absl::Status OfferCut(const Schedule& schedule, const ScheduleCosts& costs,
                      double before, Advice& best) {
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction even,
                          PredictSchedule(schedule, WithEqualStages(costs)));
  size_t slow = 0;
  size_t fast = 0;
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    if (MicrobatchTime(costs.stages[s]) > MicrobatchTime(costs.stages[slow]))
      slow = s;
    if (MicrobatchTime(costs.stages[s]) < MicrobatchTime(costs.stages[fast]))
      fast = s;
  }
  Offer(before, even.step, AdviceKind::kMoveCut,
        absl::StrFormat(
            "make the stages more equal (--balance=profile, or the layers by "
            "name): stage %d takes %.2f ms a microbatch, stage %d takes %.2f; "
            "if all took as long, ",
            slow, 1e3 * MicrobatchTime(costs.stages[slow]), fast,
            1e3 * MicrobatchTime(costs.stages[fast])),
        best);
  return absl::OkStatus();
}

// The schedule of that name with these devices and microbatches, and as many
// stages a device as `chunks`; none where there is no such schedule.
std::optional<Schedule> Made(const std::string& name, const Schedule& like,
                             int chunks, int microbatches,
                             const AdviceLimits& limits) {
  if (limits.layers > 0 && like.devices() * chunks > limits.layers) {
    return std::nullopt;
  }
  absl::StatusOr<Schedule> made =
      MakeSchedule(name, {like.devices(), chunks, microbatches});
  if (!made.ok()) return std::nullopt;
  return *std::move(made);
}

absl::Status OfferMicrobatches(const Schedule& schedule,
                               const ScheduleCosts& costs,
                               const AdviceLimits& limits, double before,
                               Advice& best) {
  const int twice = 2 * schedule.microbatches;
  if (limits.batch_size > 0 && twice > limits.batch_size) {
    return absl::OkStatus();
  }
  const auto more = Made(schedule.name, schedule,
                         schedule.stages / schedule.devices(), twice, limits);
  if (!more.has_value()) return absl::OkStatus();  // a file's
  ScheduleCosts half = costs;
  const double part = limits.fixed_part + (1 - limits.fixed_part) / 2;
  for (StageCost& each : half.stages) {
    StageCost shrunk = {0, 0, 0};
    Add(shrunk, each, part);
    each = shrunk;
  }
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction predicted,
                          PredictSchedule(*more, half));
  Offer(before, predicted.step, AdviceKind::kMoreMicrobatches,
        absl::StrFormat("more microbatches (%d); if %.0f %% of each one's "
                        "time does not shrink with it, ",
                        twice, 100 * limits.fixed_part),
        best);
  return absl::OkStatus();
}

// What the stages of `other` take, when each device has the layers that it has
// now, cut into equal stages.
ScheduleCosts CostsIn(const Schedule& other, const Schedule& schedule,
                      const ScheduleCosts& costs) {
  ScheduleCosts moved = costs;
  moved.stages.assign(other.stages, StageCost{0, 0, 0});
  for (int device = 0; device < other.devices(); ++device) {
    StageCost all = {0, 0, 0};
    for (int stage : schedule.stages_of[device]) Add(all, costs.stages[stage]);
    const std::vector<int>& stages = other.stages_of[device];
    for (int stage : stages) {
      Add(moved.stages[stage], all, 1.0 / static_cast<double>(stages.size()));
    }
  }
  return moved;
}

int MostActivations(const Schedule& schedule) {
  const auto facts = ValidateSchedule(schedule, {schedule.microbatches, 0});
  if (!facts.ok()) return 0;
  return *std::max_element(facts->peak_activations.begin(),
                           facts->peak_activations.end());
}

std::string Activations(const Schedule& other, const Schedule& schedule) {
  const int most = MostActivations(other);
  const int chunks = other.stages / other.devices();
  return absl::StrCat(
      "keeps the activations of ", most, " microbatches",
      chunks > 1 ? absl::StrCat(" in 1 of ", chunks, " stages each") : "",
      " on one device, ", schedule.name, " of ", MostActivations(schedule));
}

absl::Status OfferSchedules(const Schedule& schedule,
                            const ScheduleCosts& costs,
                            const AdviceLimits& limits, double before,
                            Advice& best) {
  for (const std::string& name : ScheduleNames()) {
    if (name == schedule.name) continue;
    const auto other =
        Made(name, schedule, UsualChunks(name), schedule.microbatches, limits);
    if (!other.has_value()) continue;
    TANDEM_ASSIGN_OR_RETURN(
        const SchedulePrediction predicted,
        PredictSchedule(*other, CostsIn(*other, schedule, costs)));
    Offer(before, predicted.step, AdviceKind::kOtherSchedule,
          absl::StrCat("another schedule (--schedule=", name, ", which ",
                       Activations(*other, schedule), "): "),
          best);
  }
  return absl::OkStatus();
}

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

double BusiestDevice(const PipelineTimes& times) {
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

std::string ReportText(const Schedule& schedule, const PipelineTimes& times,
                       const BubbleReport& report) {
  return absl::StrFormat(
      "%s: %d stages on %d devices, %d microbatches; means of %d steps\n\n"
      "ms a step\n%s\n"
      "ms a microbatch\n%s\n"
      "step     %s ms; predicted from the stages' times: %s ms; if all "
      "stages took as long: %s ms\n"
      "bubble   %.1f %% of the step is beyond what the busiest device "
      "computes; predicted: %.1f %%; with equal stages: %.1f %%\n"
      "advice   %s\n",
      schedule.name, schedule.stages, schedule.devices(), schedule.microbatches,
      times.steps(), DeviceTable(schedule, times), StageTable(schedule, times),
      Milliseconds(report.step), Milliseconds(report.predicted),
      Milliseconds(report.equal), 100 * report.measured_bubble,
      100 * report.predicted_bubble, 100 * report.ideal_bubble,
      report.advice.text);
}

}  // namespace

ScheduleCosts WithEqualStages(const ScheduleCosts& costs) {
  ScheduleCosts even = costs;
  StageCost mean = {0, 0, 0};
  for (const StageCost& each : costs.stages) {
    Add(mean, each, 1.0 / static_cast<double>(costs.stages.size()));
  }
  even.stages.assign(costs.stages.size(), mean);
  return even;
}

absl::StatusOr<Advice> AdviseOn(const Schedule& schedule,
                                const ScheduleCosts& costs,
                                const AdviceLimits& limits) {
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction now,
                          PredictSchedule(schedule, costs));
  Advice best;
  TANDEM_RETURN_IF_ERROR(OfferCut(schedule, costs, now.step, best));
  TANDEM_RETURN_IF_ERROR(
      OfferMicrobatches(schedule, costs, limits, now.step, best));
  TANDEM_RETURN_IF_ERROR(
      OfferSchedules(schedule, costs, limits, now.step, best));
  if (best.gain > kLeastGain) return best;
  return Advice{AdviceKind::kNothing, 0,
                "nothing: neither another cut, nor more microbatches, nor "
                "another schedule would save more than 3 % of a step"};
}

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
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction equal,
                          PredictSchedule(schedule, WithEqualStages(costs)));
  BubbleReport report;
  report.step = times.StepSeconds();
  report.predicted = predicted.step;
  report.equal = equal.step;
  if (report.step > 0 && predicted.step > 0) {
    report.measured_bubble = 1 - BusiestDevice(times) / report.step;
    report.predicted_bubble = predicted.bubble / predicted.step;
  }
  TANDEM_ASSIGN_OR_RETURN(report.ideal_bubble, IdealBubble(schedule, costs));
  TANDEM_ASSIGN_OR_RETURN(report.advice, AdviseOn(schedule, costs, limits));
  report.text = ReportText(schedule, times, report);
  return report;
}

}  // namespace tandem
