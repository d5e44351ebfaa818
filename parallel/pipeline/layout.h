// Pipeline layout: which ranks and devices hold a schedule's stages.

#ifndef TANDEM_PARALLEL_PIPELINE_LAYOUT_H_
#define TANDEM_PARALLEL_PIPELINE_LAYOUT_H_

#include <c10/core/Device.h>

#include <vector>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// How a schedule's devices are shared out.
struct PipelineLayout {
  // Device d of the schedule is number d % devices.size() of rank d /
  // devices.size() of `group`.
  std::vector<c10::Device> devices;  // this rank's
  Communicator* group = nullptr;     // null: one rank

  int rank() const { return group == nullptr ? 0 : group->rank(); }
  int ranks() const { return group == nullptr ? 1 : group->size(); }
  int RankOf(int schedule_device) const {
    return schedule_device / static_cast<int>(devices.size());
  }
  bool IsHere(int schedule_device) const {
    return RankOf(schedule_device) == rank();
  }
  c10::Device DeviceFor(int schedule_device) const {
    return devices[static_cast<size_t>(schedule_device) % devices.size()];
  }
};

// InvalidArgument when the layout has another number of devices than the
// schedule.
absl::Status CheckLayout(const Schedule& schedule,
                         const PipelineLayout& layout);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_LAYOUT_H_
