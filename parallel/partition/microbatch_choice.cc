#include "parallel/partition/microbatch_choice.h"

#include <glog/logging.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

struct Trial {
  Cuts cuts;
  ModelOutline model;
  double step = 0;
};

absl::StatusOr<Trial> Try(const BalanceRule& rule, const ModelOutline& model,
                          const Schedule& schedule,
                          const PipelineDevices& devices,
                          absl::StatusOr<ModelProfile> profile) {
  TANDEM_RETURN_IF_ERROR(profile.status());
  Trial trial;
  trial.model = model;
  trial.model.profile = *std::move(profile);
  TANDEM_ASSIGN_OR_RETURN(trial.cuts,
                          PartitionModel(rule, trial.model, schedule, devices));
  if (!FitsDevices(*trial.model.profile, trial.cuts, schedule, devices)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the stages that this gives do not fit into devices of ",
        devices.device_bytes,
        " bytes; give more devices, a smaller batch, more memory or "
        "--balance=profile"));
  }
  TANDEM_ASSIGN_OR_RETURN(
      trial.step,
      PredictedStep(*trial.model.profile, trial.cuts, schedule, devices));
  return trial;
}

// "21.4", "0.214".
std::string StepMilliseconds(double seconds) {
  return absl::StrFormat("%.*f", seconds < 0.01 ? 3 : 1, 1e3 * seconds);
}

}  // namespace

absl::StatusOr<MicrobatchChoice> ChooseMicrobatches(
    const BalanceRule& rule, const ModelOutline& model,
    const std::vector<Schedule>& schedules, const PipelineDevices& devices,
    ProfileOfSchedule profile) {
  CHECK(!schedules.empty());
  MicrobatchChoice choice;
  std::optional<Trial> best;
  absl::Status misfit;
  for (size_t i = 0; i < schedules.size(); ++i) {
    absl::StatusOr<Trial> trial =
        Try(rule, model, schedules[i], devices, profile(i));
    choice.tried.push_back({schedules[i].microbatches, std::nullopt});
    if (absl::IsResourceExhausted(trial.status())) {
      misfit = trial.status();
      continue;
    }
    TANDEM_RETURN_IF_ERROR(trial.status());
    choice.tried.back().step = trial->step;
    if (best.has_value() && best->step <= trial->step) continue;
    choice.index = i;
    best = *std::move(trial);
  }
  if (!best.has_value()) return misfit;
  choice.cuts = std::move(best->cuts);
  choice.model = std::move(best->model);
  return choice;
}

std::string DescribeChoice(const MicrobatchChoice& choice) {
  const TriedMicrobatches& chosen = choice.tried[choice.index];
  std::vector<int> numbers;
  std::vector<std::string> others;
  for (const TriedMicrobatches& each : choice.tried) {
    numbers.push_back(each.microbatches);
    if (&each == &chosen) continue;
    others.push_back(absl::StrCat(
        each.microbatches, ": ",
        each.step.has_value() ? StepMilliseconds(*each.step) : "does not fit"));
  }
  return absl::StrCat(chosen.microbatches, " of ", absl::StrJoin(numbers, ", "),
                      " (predicted ", StepMilliseconds(chosen.step.value_or(0)),
                      " ms a step", others.empty() ? "" : "; ",
                      absl::StrJoin(others, ", "), ")");
}

}  // namespace tandem
