#include "core/testing/device_types.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

#include "core/sim/testing.h"

namespace tandem {

std::vector<c10::DeviceType> DeviceTypesToTest() {
  std::vector<c10::DeviceType> types = {c10::kCPU};
  if (!at::detail::getCUDAHooks().hasCUDA()) SimDevices(1);
  const std::optional<c10::DeviceType> type = at::accelerator::getAccelerator();
  if (type && at::accelerator::deviceCount() > 0) types.push_back(*type);
  return types;
}

std::vector<c10::Device> DevicesToTest(c10::DeviceType type, int n) {
  const int count =
      type == c10::kCPU ? n : c10::impl::VirtualGuardImpl(type).deviceCount();
  std::vector<c10::Device> devices;
  for (int i = 0; i < n; ++i) {
    devices.emplace_back(type, static_cast<c10::DeviceIndex>(i % count));
  }
  return devices;
}

std::string DeviceTypeToTestName(
    const testing::TestParamInfo<c10::DeviceType>& info) {
  return c10::DeviceTypeName(info.param, /*lower_case=*/true);
}

}  // namespace tandem
