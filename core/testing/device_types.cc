#include "core/testing/device_types.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "core/backend/backend_names.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"

namespace tandem {
namespace {

// Does a backend serve a type of device?
bool Serves(const std::string& backend, c10::DeviceType type) {
  const absl::StatusOr<BackendNames> names = ParseBackend(backend);
  return names.ok() && !names->device.empty() && names->device_type == type;
}

std::optional<c10::DeviceType> AcceleratorType() {
  if (!at::detail::getCUDAHooks().hasCUDA()) SimDevices(1);
  const std::optional<c10::DeviceType> type = at::accelerator::getAccelerator();
  return type && at::accelerator::deviceCount() > 0 ? type : std::nullopt;
}

// Has no need of devices to say no.
bool BackendIsForDevices() {
  const absl::StatusOr<BackendNames> names = ParseBackend(TestBackend());
  if (!names.ok() || names->device.empty()) return false;
  return AcceleratorType() == names->device_type;
}

// Simulated devices are made before a process's first backward.
const c10::DeviceType default_type =
    BackendIsForDevices() ? *AcceleratorType() : c10::kCPU;

// Ranks' threads read it.
std::atomic<c10::DeviceType> test_device_type{default_type};

}  // namespace

std::vector<c10::DeviceType> DeviceTypesToTest() {
  std::vector<c10::DeviceType> types;
#ifdef NDEBUG
  if (!BackendIsForDevices()) types.push_back(c10::kCPU);
#endif
  const std::optional<c10::DeviceType> type = AcceleratorType();
  if (type) types.push_back(*type);
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

std::string DeviceTypeAndTestName(c10::DeviceType type, const std::string& name,
                                  size_t /*index*/) {
  return c10::DeviceTypeName(type, /*lower_case=*/true) + "_" + name;
}

std::string DeviceTypeAndTestName(
    c10::DeviceType type, const std::tuple<int, std::string>& ranks_and_backend,
    size_t index) {
  const auto& [ranks, backend] = ranks_and_backend;
  return DeviceTypeAndTestName(type, std::to_string(ranks) + backend, index);
}

TestDeviceTypeScope::TestDeviceTypeScope(c10::DeviceType type) {
  test_device_type = type;
}

TestDeviceTypeScope::~TestDeviceTypeScope() { test_device_type = default_type; }

c10::Device TestDevice(int i) {
  const c10::DeviceType type = test_device_type;
  if (type == c10::kCPU) return i == 0 ? c10::kCPU : c10::Device(type, i);
  const int rank = ThisThreadsRank();
  return DevicesToTest(type, 2 * (rank + 1)).at(2 * rank + i);
}

CommunicatorOptions WithTestDevice(CommunicatorOptions options, int devices) {
  const c10::Device device = TestDevice();
  if (Serves(options.backend, device.type())) {
    options.device = device;
    for (int i = 1; i < devices; ++i) {
      options.further_devices.push_back(TestDevice(i));
    }
  }
  return options;
}

absl::Status RunDeviceRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn) {
  CommunicatorOptions options;
  options.backend = TestBackend();
  options.timeout = std::chrono::seconds(30);
  return RunThreadRanks(
      n, fn, [&] { return WithTestDevice(options, 2); }, options.timeout);
}

}  // namespace tandem
