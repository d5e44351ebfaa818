// Which backend, and which arithmetic, a job is asked for, and whether its
// devices are for it.

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

namespace {

// How GPUs compute.
absl::Status CheckNumerics(const TrainOptions& options) {
  const DeviceSettings& devices = options.devices;
  if (!devices.cudnn_benchmark && !devices.allow_tf32) return absl::OkStatus();
  const std::string flag =
      devices.cudnn_benchmark ? "--cudnn_benchmark" : "--allow_tf32";
  if (devices.device != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " is for GPUs: set --device=cuda, not ", devices.device));
  }
  if (!options.pipeline.reproducible) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag,
      devices.cudnn_benchmark
          ? " picks kernels by time, and another run may pick others"
          : " rounds as GPUs with TF32 do and others do not",
      ", which --reproducible cannot have: leave one out"));
}

// Of a file of choices where nothing is chosen.
absl::Status CheckKernels(const TrainOptions& options) {
  if (options.kernel_cache.empty() || MeasuresKernels(options)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--kernel_cache=", options.kernel_cache,
      " keeps kernels that are measured, but ",
      options.kernels == "fixed" ? "--kernels=fixed" : "--reproducible",
      " has a rule choose them: leave it out"));
}

}  // namespace

bool MeasuresKernels(const TrainOptions& options) {
  return options.kernels == "measured" ||
         (options.kernels == "auto" && !options.pipeline.reproducible);
}

absl::Status CheckBackend(const TrainOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckNumerics(options));
  TANDEM_RETURN_IF_ERROR(CheckKernels(options));
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
