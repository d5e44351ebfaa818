#include "parallel/report/pipeline_advice.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/validator.h"

namespace tandem {
namespace {

constexpr double kLeastGain = 0.03;

double TimeOf(const StageCost& cost) {
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
    if (TimeOf(costs.stages[s]) > TimeOf(costs.stages[slow])) slow = s;
    if (TimeOf(costs.stages[s]) < TimeOf(costs.stages[fast])) fast = s;
  }
  Offer(before, even.step, AdviceKind::kMoveCut,
        absl::StrFormat(
            "move the cut (balance by profile): stage %d takes %.2f ms a "
            "microbatch, stage %d takes %.2f; if all took as long, ",
            slow, 1e3 * TimeOf(costs.stages[slow]), fast,
            1e3 * TimeOf(costs.stages[fast])),
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
    const std::vector<int>& its = other.stages_of[device];
    for (int stage : its) {
      Add(moved.stages[stage], all, 1.0 / static_cast<double>(its.size()));
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
          absl::StrCat("another schedule (", name, ", which ",
                       Activations(*other, schedule), "): "),
          best);
  }
  return absl::OkStatus();
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

}  // namespace tandem
