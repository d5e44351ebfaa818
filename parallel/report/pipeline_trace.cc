#include "parallel/report/pipeline_trace.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/device/device_trace.h"

namespace tandem {
namespace {

std::string ActionTitle(const Action& action) {
  const char* part = "";
  if (action.kind == ActionKind::kBackwardInput) part = ", input";
  if (action.kind == ActionKind::kBackwardWeight) part = ", weights";
  return absl::StrCat(IsForward(action.kind) ? "forward " : "backward ",
                      action.microbatch, " of stage ", action.stage, part);
}

// The messages of a step.
class Messages {
 public:
  Messages(const Schedule& schedule, const std::string& step)
      : devices_(DevicesOfStages(schedule)), step_(step) {}

  void AddTo(TraceEvent* event, const Action& action) const {
    const int stage = action.stage;
    const int microbatch = action.microbatch;
    if (IsForward(action.kind)) {
      Add("activations", stage, stage + 1, microbatch, &event->sends);
      Add("activations", stage - 1, stage, microbatch, &event->receives);
    } else if (GivesInputGradient(action.kind)) {
      Add("gradients", stage, stage - 1, microbatch, &event->sends);
      Add("gradients", stage + 1, stage, microbatch, &event->receives);
    }
  }

 private:
  // What stays on its device is no message.
  void Add(const char* what, int from, int to, int microbatch,
           std::vector<std::string>* names) const {
    if (from < 0 || to < 0) return;
    const auto sender = static_cast<size_t>(from);
    const auto receiver = static_cast<size_t>(to);
    if (sender >= devices_.size() || receiver >= devices_.size()) return;
    if (devices_[sender] == devices_[receiver]) return;
    names->push_back(absl::StrCat(step_, ": ", what, " of microbatch ",
                                  microbatch, " from stage ", from));
  }

  const std::vector<int> devices_;  // by stage
  const std::string& step_;
};

}  // namespace

void AddToTrace(const PipelineTimeline& timeline, const Schedule& schedule,
                const std::string& step, Trace& trace) {
  const Messages messages(schedule, step);
  for (size_t device = 0; device < timeline.size(); ++device) {
    const std::string track = DeviceTrack(static_cast<int>(device));
    for (const ActionTime& each : timeline[device]) {
      TraceEvent event = {
          track, ActionTitle(each.action), "", each.started, each.computed, {}};
      messages.AddTo(&event, each.action);
      trace.Add(std::move(event));
    }
  }
}

}  // namespace tandem
