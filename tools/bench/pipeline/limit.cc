#include "tools/bench/pipeline/limit.h"

#include "core/base/status_macros.h"

namespace tandem {

absl::StatusOr<double> PipelineLimit(const Schedule& schedule,
                                     const std::vector<StageCost>& costs) {
  ScheduleCosts all;
  all.stages = costs;
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction times,
                          PredictSchedule(schedule, all));
  return 1 - times.idle;
}

std::vector<StageCost> Evened(const std::vector<StageCost>& costs) {
  StageCost sum = {0, 0, 0};
  for (const StageCost& each : costs) {
    sum.forward += each.forward;
    sum.backward_input += each.backward_input;
    sum.backward_weight += each.backward_weight;
  }
  const auto count = static_cast<double>(costs.size());
  const StageCost mean = {sum.forward / count, sum.backward_input / count,
                          sum.backward_weight / count};
  return std::vector<StageCost>(costs.size(), mean);
}

absl::StatusOr<StepParts> PartsOfStep(const Schedule& schedule,
                                      const StepMeasurements& measured) {
  const std::vector<StageCost> even = Evened(measured.stages);
  TANDEM_ASSIGN_OR_RETURN(const double limit, PipelineLimit(schedule, even));
  TANDEM_ASSIGN_OR_RETURN(const double stage_limit,
                          PipelineLimit(schedule, measured.stages));
  const StageCost& each = even.front();
  const double work =
      (each.forward + each.backward_input + each.backward_weight) *
      schedule.stages * schedule.microbatches / schedule.devices();
  StepParts parts;
  parts.step = measured.step_ms;
  parts.floor = measured.alone_ms / schedule.devices();
  parts.microbatching = work + measured.optimizer_ms - parts.floor;
  parts.bubble = work / limit - work;
  parts.imbalance = work / stage_limit - work / limit;
  parts.rest = parts.step - parts.floor - parts.microbatching - parts.bubble -
               parts.imbalance;
  return parts;
}

double OverheadOfMicrobatch(double step_ms, double alone_ms, double limit,
                            int devices, int microbatches) {
  return (step_ms - alone_ms / devices / limit) / microbatches;
}

}  // namespace tandem
