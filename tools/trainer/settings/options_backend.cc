// Which backend a job is asked for, and whether its devices are for it.

#include <string>

#include "absl/strings/str_cat.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

absl::Status CheckBackend(const TrainOptions& options) {
  const std::string& device = options.devices.device;
  if (options.backend == "sim_nccl" && device != "sim") {
    return absl::InvalidArgumentError(
        absl::StrCat("--backend=sim_nccl rehearses NCCL on simulated devices: "
                     "set --device=sim, not ",
                     device));
  }
  if (options.backend == "nccl" && device != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--backend=nccl is for GPUs: set --device=cuda, or rehearse it with "
        "--device=sim --backend=sim_nccl; --device is ",
        device));
  }
  const bool has_nccl =
      options.backend == "nccl" || options.backend == "sim_nccl";
  if (options.devices.share_devices && has_nccl) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--share_devices puts ranks on one device, which NCCL refuses (one "
        "rank a GPU): --backend=",
        options.backend, " needs a device for each; use --backend=shm"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
