// Pipeline trace: a step as a trace viewer shows it.

#ifndef TANDEM_PARALLEL_REPORT_PIPELINE_TRACE_H_
#define TANDEM_PARALLEL_REPORT_PIPELINE_TRACE_H_

#include "core/instrument/trace.h"
#include "parallel/pipeline/timeline.h"

namespace tandem {

// A track "device 1" for each device of the schedule that is here, with its
// actions: "forward 3 of stage 2", "backward 0 of stage 1", "backward 0 of
// stage 1, input" and "..., weights". Waiting is what lies between them.
void AddToTrace(const PipelineTimeline& timeline, Trace& trace);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPORT_PIPELINE_TRACE_H_
