// Pipeline timeline: what each device did in one step, and when.

#ifndef TANDEM_PARALLEL_PIPELINE_TIMELINE_H_
#define TANDEM_PARALLEL_PIPELINE_TIMELINE_H_

#include <chrono>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace tandem {

// The parts of one action, which follow each other without a gap: the wait for
// what it needs, the work, and handing over what it made.
struct ActionTime {
  using Clock = std::chrono::steady_clock;

  Action action;
  Clock::time_point came;     // the device was free for it
  Clock::time_point started;  // its input, or gradient, was there
  Clock::time_point computed;
  Clock::time_point ended;  // and handed over
};

// By schedule device; empty for a device of another rank.
using PipelineTimeline = std::vector<std::vector<ActionTime>>;

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_TIMELINE_H_
