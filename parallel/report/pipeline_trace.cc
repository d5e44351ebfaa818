#include "parallel/report/pipeline_trace.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

std::string NameOf(const Action& action) {
  const bool is_forward = action.kind == ActionKind::kForward;
  const char* part = "";
  if (action.kind == ActionKind::kBackwardInput) part = ", input";
  if (action.kind == ActionKind::kBackwardWeight) part = ", weights";
  return absl::StrCat(is_forward ? "forward " : "backward ", action.microbatch,
                      " of stage ", action.stage, part);
}

}  // namespace

void AddToTrace(const PipelineTimeline& timeline, Trace& trace) {
  for (size_t device = 0; device < timeline.size(); ++device) {
    const std::string track = absl::StrCat("device ", device);
    for (const ActionTime& each : timeline[device]) {
      trace.Add(
          {track, NameOf(each.action), "", each.started, each.computed, {}});
    }
  }
}

}  // namespace tandem
