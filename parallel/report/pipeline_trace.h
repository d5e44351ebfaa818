// Pipeline trace: what the devices of a pipeline did in a step, and which
// messages went between them, for a viewer (core/instrument/trace_file.h).

#ifndef TANDEM_PARALLEL_REPORT_PIPELINE_TRACE_H_
#define TANDEM_PARALLEL_REPORT_PIPELINE_TRACE_H_

#include <string>

#include "core/instrument/trace.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// A track "device 1" for each device of the schedule that is here, with its
// actions: "forward 3 of stage 2", "backward 0 of stage 1", "backward 0 of
// stage 1, input" and "..., weights". Waiting is what lies between them.
//
// Activations and their gradients are messages between devices, by step,
// microbatch, stage and direction: with the other ranks' traces each leads from
// the action that gave it to the one that takes it. `step` is the same text on
// all ranks of a replica, and another for every other step and replica: "step 3
// of replica 0".
void AddToTrace(const PipelineTimeline& timeline, const Schedule& schedule,
                const std::string& step, Trace& trace);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPORT_PIPELINE_TRACE_H_
