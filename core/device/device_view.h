// Device view: which of the devices that a process sees are its rank's.

#ifndef TANDEM_CORE_DEVICE_DEVICE_VIEW_H_
#define TANDEM_CORE_DEVICE_DEVICE_VIEW_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/environment.h"

namespace tandem {

// A rank on its host, and what it sees there.
struct DeviceView {
  int local_rank = 0;
  int local_world_size = 1;  // ranks on the host
  int devices_per_rank = 1;
  int found = 0;  // devices that this process sees
  // They are this rank's alone: other ranks of the host see others.
  bool is_own = false;
  // Several places may lie on one device.
  bool shared = false;
};

// The numbers of the rank's devices, `devices_per_rank` of them, among those
// found. Where all ranks of the host find a device each: rank r has r * n to r
// * n + n - 1, n being `devices_per_rank`. Of a view of its own: the first.
// Shared: place p = r * n + i of the host lies on device p mod `found`.
// FailedPrecondition, with numbers and remedy, where there are too few;
// InvalidArgument for numbers that make no sense. Pure.
absl::StatusOr<std::vector<int>> ChooseDevices(const DeviceView& view);

// Whether `found` GPUs are the view of one rank, by what its launcher (see
// Launch::launcher) and `environment` say: that each rank gets as many
// (SLURM_GPUS_PER_TASK), that Slurm's step has more on this node
// (SLURM_GPUS_ON_NODE), or, under others that can give each rank variables of
// its own, that CUDA_VISIBLE_DEVICES is set and names `devices_per_rank`.
// tandem's launcher and torchrun give all ranks the same view. Pure.
bool IsOwnView(const Environment& environment, absl::string_view launcher,
               int devices_per_rank, int found);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_DEVICE_VIEW_H_
