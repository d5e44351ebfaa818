#include "parallel/data_parallel/data_parallel.h"

#include <ATen/DeviceAccelerator.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

std::vector<c10::Device> AllDevices() {
  std::vector<c10::Device> devices;
  const std::optional<c10::DeviceType> type = at::accelerator::getAccelerator();
  const int count = type.has_value() ? at::accelerator::deviceCount() : 0;
  for (int i = 0; i < count; ++i) {
    devices.emplace_back(*type, static_cast<c10::DeviceIndex>(i));
  }
  if (devices.empty()) devices.emplace_back(c10::kCPU);
  return devices;
}

absl::Status CheckNumber(c10::Device device) {
  if (device.is_cpu() || device.has_index()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "device ", device.str(), " of DataParallel has no number: ", "give ",
      device.str(), ":0, say"));
}

}  // namespace

absl::StatusOr<std::vector<c10::Device>> DevicesOf(
    const DataParallelOptions& options) {
  const std::vector<c10::Device> devices =
      options.device_ids.empty() ? AllDevices() : options.device_ids;
  for (const c10::Device& each : devices) {
    const absl::Status numbered = CheckNumber(each);
    if (!numbered.ok()) return numbered;
  }
  return devices;
}

}  // namespace tandem
