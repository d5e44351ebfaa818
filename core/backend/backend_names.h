// Backend names: which c10d backends serve a group's host tensors and its
// device's, as torch.distributed.init_process_group's `backend` says it.

#ifndef TANDEM_CORE_BACKEND_BACKEND_NAMES_H_
#define TANDEM_CORE_BACKEND_BACKEND_NAMES_H_

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct BackendNames {
  std::string host = "shm";
  // The backend of tensors that lie on a device. Empty: the host's, for devices
  // whose memory the host can reach.
  std::string device;
  c10::DeviceType device_type = c10::DeviceType::CPU;  // if there is one

  // Whether streams run what a group is given of such a device.
  bool HasStreams(c10::DeviceType type) const {
    return !device.empty() && device_type == type;
  }
};

// "shm", "gloo": for tensors of the host, and of simulated devices.
// "sim_nccl", "nccl": for tensors of simulated devices, of GPUs; shm serves the
// host's. "sim_links": for tensors without values, in a rehearsal with
// --fake_weights: nothing is moved, only counted. "cpu:gloo,cuda:nccl" names
// both. InvalidArgument for anything else lists what there is.
absl::StatusOr<BackendNames> ParseBackend(absl::string_view text);

// Does an all-reduce of this backend take c10d's PREMUL_SUM, which multiplies
// each rank's tensor by `factor` as it is summed, as exactly as a product of
// its own would? NCCL rounds the factor to the tensor's dtype: 1/3 in bf16 is
// 0.334.
bool BackendMultiplies(absl::string_view name, c10::ScalarType dtype,
                       double factor);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_BACKEND_NAMES_H_
