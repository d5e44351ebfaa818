#include "parallel/pipeline/lanes.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {

absl::StatusOr<PipelineLanes> PipelineLanes::Create(
    const Schedule& schedule, const PipelineLayout& layout) {
  PipelineLanes lanes;
  if (layout.group == nullptr ||
      !layout.group->HasStreams(layout.devices.front().type())) {
    return lanes;
  }
  for (int stage = 0; stage + 1 < schedule.stages; ++stage) {
    const int device = DeviceOfStage(schedule, stage);
    const int next = DeviceOfStage(schedule, stage + 1);
    const int sender = layout.RankOf(device);
    const int receiver = layout.RankOf(next);
    if (sender == receiver ||
        (!layout.IsHere(device) && !layout.IsHere(next))) {
      continue;
    }
    SubgroupOptions own;
    own.device = layout.DeviceFor(layout.IsHere(device) ? device : next);
    const std::vector<int> ranks = {sender, receiver};
    Lane& lane = lanes.lanes_[stage];
    TANDEM_ASSIGN_OR_RETURN(
        lane.activations,
        layout.group->Subgroup(
            ranks, absl::StrCat("activations from stage ", stage), own));
    TANDEM_ASSIGN_OR_RETURN(
        lane.gradients,
        layout.group->Subgroup(
            ranks, absl::StrCat("gradients for stage ", stage), own));
  }
  return lanes;
}

const PipelineLanes::Lane* PipelineLanes::Find(int stage) const {
  const auto found = lanes_.find(stage);
  return found == lanes_.end() ? nullptr : &found->second;
}

absl::Status PipelineLanes::Synchronize() const {
  absl::Status all;
  for (const auto& each : lanes_) {
    all.Update(each.second.activations->Synchronize());
    all.Update(each.second.gradients->Synchronize());
  }
  return all;
}

void PipelineLanes::Abort(const absl::Status& reason) const {
  for (const auto& each : lanes_) {
    each.second.activations->Abort(reason);
    each.second.gradients->Abort(reason);
  }
}

}  // namespace tandem
