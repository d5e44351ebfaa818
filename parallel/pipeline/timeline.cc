#include "parallel/pipeline/timeline.h"

#include <algorithm>

namespace tandem {

// Each device comes to its moments in order.
bool HaveCome(const PipelineMoments& moments) {
  return std::all_of(moments.begin(), moments.end(),
                     [](const std::vector<ActionMoments>& device) {
                       return device.empty() || device.back().ended.has_come();
                     });
}

PipelineTimeline AwaitTimes(const PipelineMoments& moments) {
  PipelineTimeline times;
  for (const std::vector<ActionMoments>& device : moments) {
    times.emplace_back();
    times.back().reserve(device.size());
    for (const ActionMoments& each : device) {
      times.back().push_back({each.action, each.came.time(),
                              each.started.time(), each.computed.time(),
                              each.ended.time()});
    }
  }
  return times;
}

}  // namespace tandem
