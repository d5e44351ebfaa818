// Pipeline timeline: what each device did in one step, and when.

#ifndef TANDEM_PARALLEL_PIPELINE_TIMELINE_H_
#define TANDEM_PARALLEL_PIPELINE_TIMELINE_H_

#include <chrono>
#include <vector>

#include "core/device/device_moment.h"
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

// The same before the devices have come there.
struct ActionMoments {
  Action action;
  DeviceMoment came;
  DeviceMoment started;
  DeviceMoment computed;
  DeviceMoment ended;
};

using PipelineMoments = std::vector<std::vector<ActionMoments>>;

// Have all of them come? Never waits.
bool HaveCome(const PipelineMoments& moments);
// Waits for all of them.
PipelineTimeline AwaitTimes(const PipelineMoments& moments);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_TIMELINE_H_
