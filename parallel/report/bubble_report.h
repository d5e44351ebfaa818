// Bubble report: where a pipeline's time went, for a person to read.
//
// Pipeline advice: what would make it faster, from predictions.

#ifndef TANDEM_PARALLEL_REPORT_BUBBLE_REPORT_H_
#define TANDEM_PARALLEL_REPORT_BUBBLE_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "parallel/report/pipeline_times.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulation.h"

namespace tandem {

enum class AdviceKind { kNothing, kMoveCut, kMoreMicrobatches, kOtherSchedule };

struct Advice {
  AdviceKind kind = AdviceKind::kNothing;
  double gain = 0;  // the part of a step that it saves
  std::string text;
};

struct AdviceLimits {
  int64_t batch_size = 0;  // microbatches at most; 0: any number
  int layers = 0;          // stages at most; 0: any number
  // The part of an action's time that does not shrink with its microbatch.
  double fixed_part = 0.1;
};

// The one change that saves most, of: stages that take equally long; twice as
// many microbatches; each other schedule (zb_v, interleaved_1f1b and looped_bfs
// with 2 stages a device). "nothing" if none saves more than 3 % of a step.
// `costs` are what the stages take now. Predictions know nothing of memory; the
// text says how many microbatches' activations another schedule keeps.
// InvalidArgument as PredictSchedule.
absl::StatusOr<Advice> AdviseOn(const Schedule& schedule,
                                const ScheduleCosts& costs,
                                const AdviceLimits& limits = {});

// The costs if all stages took as long.
ScheduleCosts WithEqualStages(const ScheduleCosts& costs);

// A bubble is the part of a step beyond what the busiest device computes.
struct BubbleReport {
  double step = 0;       // seconds, measured
  double predicted = 0;  // by PredictSchedule, from the stages' mean times
  double equal = 0;      // the same, if all stages took as long
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
