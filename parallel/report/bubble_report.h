// Bubble report: where a pipeline's time went, for a person to read.

#ifndef TANDEM_PARALLEL_REPORT_BUBBLE_REPORT_H_
#define TANDEM_PARALLEL_REPORT_BUBBLE_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "parallel/report/pipeline_advice.h"
#include "parallel/report/pipeline_times.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// A bubble is the part of a step beyond what the busiest device computes.
struct BubbleReport {
  double step = 0;       // seconds, measured
  double predicted = 0;  // by PredictSchedule, from the stages' mean times
  // Parts of a step, 0 to 1.
  double measured_bubble = 0;
  double predicted_bubble = 0;
  // If all stages took as long and messages no time: the papers' formulas.
  double ideal_bubble = 0;
  Advice advice;
  // Tables of devices (what a step's time went into) and stages (what a
  // microbatch takes), the bubbles, and the advice.
  std::string text;
};

// FailedPrecondition when no step was counted. InvalidArgument when the times
// are of another schedule.
absl::StatusOr<BubbleReport> ReportBubbles(const Schedule& schedule,
                                           const PipelineTimes& times,
                                           const AdviceLimits& limits = {});

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPORT_BUBBLE_REPORT_H_
