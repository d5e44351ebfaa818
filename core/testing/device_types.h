// For tests: the types of device that code which takes a device is tested on.
//
//   class MyTest : public DeviceTypeTest {};
//   TEST_P(MyTest, Works) { Do(Devices(2)); }
//   TANDEM_ON_DEVICE_TYPES(MyTest);

#ifndef TANDEM_CORE_TESTING_DEVICE_TYPES_H_
#define TANDEM_CORE_TESTING_DEVICE_TYPES_H_

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {

// The CPU, and CUDA where there is one, else simulated devices (core/sim),
// which are made by this call: asynchronous ones if $TANDEM_SIM_ASYNC says so.
std::vector<c10::DeviceType> DeviceTypesToTest();

// `n` devices: those of the type, and over again when there are fewer. Those of
// the CPU are numbered too, cpu:0, cpu:1, ...: LibTorch copies tensors from one
// to the other, though each says that it is on "cpu".
std::vector<c10::Device> DevicesToTest(c10::DeviceType type, int n);

// "cpu", ...
std::string DeviceTypeToTestName(
    const testing::TestParamInfo<c10::DeviceType>& info);

class DeviceTypeTest : public testing::TestWithParam<c10::DeviceType> {
 protected:
  static std::vector<c10::Device> Devices(int n) {
    return DevicesToTest(GetParam(), n);
  }
};

// Has the tests of `Suite` run on each type.
#define TANDEM_ON_DEVICE_TYPES(Suite)                                        \
  INSTANTIATE_TEST_SUITE_P(On, Suite,                                        \
                           testing::ValuesIn(::tandem::DeviceTypesToTest()), \
                           ::tandem::DeviceTypeToTestName)

}  // namespace tandem

#endif  // TANDEM_CORE_TESTING_DEVICE_TYPES_H_
