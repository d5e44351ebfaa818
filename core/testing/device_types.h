// For tests: the types of device that code which takes a device is tested on.
//
//   class MyTest : public DeviceTypeTest {};
//   TEST_P(MyTest, Works) { Do(at::ones({3}, TestDevice())); }
//   TANDEM_ON_DEVICE_TYPES(MyTest);
//
// On each type and with each of other values:
//
//   class MyTest : public DeviceTypesAnd<double> {};
//   TEST_P(MyTest, Works) { Do(at::full({3}, value(), TestDevice())); }
//   TANDEM_ON_DEVICE_TYPES_AND(MyTest, testing::Values(0.5, 2));

#ifndef TANDEM_CORE_TESTING_DEVICE_TYPES_H_
#define TANDEM_CORE_TESTING_DEVICE_TYPES_H_

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "core/backend/communicator_options.h"
#include "core/comm/communicator.h"
#include "gtest/gtest.h"

namespace tandem {

// The CPU, and CUDA where there is one, else simulated devices (core/sim),
// which are made by this call: asynchronous ones if $TANDEM_SIM_ASYNC says so.
// Not the CPU in debug builds (sanitizers' among them): LibTorch's headers then
// refuse a CPU with a number; nor where TestBackend() is for devices.
std::vector<c10::DeviceType> DeviceTypesToTest();

// `n` devices: those of the type, and over again when there are fewer. The
// CPU's are numbered, too, cpu:0, cpu:1, ...: LibTorch copies tensors from one
// to the other, though each says that it is on "cpu".
std::vector<c10::Device> DevicesToTest(c10::DeviceType type, int n);

// "cpu", ...
std::string DeviceTypeToTestName(
    const testing::TestParamInfo<c10::DeviceType>& info);

// "sim_gloo" where the other value is a name, "sim_2gloo" where it is a number
// of ranks and a backend, else "sim_" and the index.
std::string DeviceTypeAndTestName(c10::DeviceType type, const std::string& name,
                                  size_t index);
std::string DeviceTypeAndTestName(
    c10::DeviceType type, const std::tuple<int, std::string>& ranks_and_backend,
    size_t index);
template <typename T>
std::string DeviceTypeAndTestName(c10::DeviceType type, const T& /*value*/,
                                  size_t index) {
  return DeviceTypeAndTestName(type, std::to_string(index), index);
}

// While this object lives, which is a test's, tests run on `type`.
class TestDeviceTypeScope {
 public:
  explicit TestDeviceTypeScope(c10::DeviceType type);
  ~TestDeviceTypeScope();
  TestDeviceTypeScope(const TestDeviceTypeScope&) = delete;
  TestDeviceTypeScope& operator=(const TestDeviceTypeScope&) = delete;
};

// Device `i` of those that the calling thread's rank (thread_ranks.h) owns, of
// the type that the test under way runs on; outside of such a test the CPU, or
// where TestBackend() is for devices, such a one.
// Each rank has two: rank r has devices 2r and 2r + 1, of the CPU "cpu" and
// "cpu:1".
c10::Device TestDevice(int i = 0);

// What ranks' groups are made with where the test's tensors go through them:
// with a communicator for TestDevice(), and `devices - 1` that follow it, if
// the backend is for such devices.
CommunicatorOptions WithTestDevice(CommunicatorOptions options,
                                   int devices = 1);

// RunThreadRanks (thread_ranks.h) with TestBackend(): with communicators for
// both of each rank's devices, if it is for such.
absl::Status RunDeviceRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn);

class DeviceTypeTest : public testing::TestWithParam<c10::DeviceType> {
 protected:
  static std::vector<c10::Device> Devices(int n) {
    return DevicesToTest(GetParam(), n);
  }

 private:
  TestDeviceTypeScope scope_{GetParam()};
};

template <typename T>
class DeviceTypesAnd
    : public testing::TestWithParam<std::tuple<c10::DeviceType, T>> {
 protected:
  static const T& value() {
    return std::get<1>(
        testing::TestWithParam<std::tuple<c10::DeviceType, T>>::GetParam());
  }

 private:
  TestDeviceTypeScope scope_{std::get<0>(
      testing::TestWithParam<std::tuple<c10::DeviceType, T>>::GetParam())};
};

// Has the tests of `Suite` run on each type.
#define TANDEM_ON_DEVICE_TYPES(Suite)                                        \
  INSTANTIATE_TEST_SUITE_P(On, Suite,                                        \
                           testing::ValuesIn(::tandem::DeviceTypesToTest()), \
                           ::tandem::DeviceTypeToTestName)

// Each type with each of the generator's values, as "sim_0", "sim_1", ...
#define TANDEM_ON_DEVICE_TYPES_AND(Suite, values)                          \
  INSTANTIATE_TEST_SUITE_P(                                                \
      On, Suite,                                                           \
      testing::Combine(testing::ValuesIn(::tandem::DeviceTypesToTest()),   \
                       values),                                            \
      [](const auto& info) {                                               \
        return ::tandem::DeviceTypeAndTestName(                            \
            std::get<0>(info.param), std::get<1>(info.param), info.index); \
      })

// For tests: subgroups whose tensors lie on the test's device.

// For Communicator::Subgroup of `group`: with a communicator for TestDevice()
// of the calling rank, if the backend is for such devices.
inline SubgroupOptions SubgroupForTestDevice(const Communicator& group) {
  SubgroupOptions options;
  if (group.backend_names().HasStreams(TestDevice().type()))
    options.device = TestDevice();
  return options;
}

}  // namespace tandem

#endif  // TANDEM_CORE_TESTING_DEVICE_TYPES_H_
