#include "parallel/partition/copy_cost.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/testing/device_types.h"

namespace tandem::copy_cost_test {
namespace {

class CopyCostTest : public DeviceTypeTest {};

TEST_P(CopyCostTest, MoreBytesTakeLonger) {
  const std::vector<c10::Device> devices = Devices(2);
  for (const c10::Device& to : devices) {
    const auto cost = MeasureCopy(devices.front(), to);
    ASSERT_TRUE(cost.ok()) << cost.status();
    EXPECT_GT(cost->seconds_per_byte, 0) << to;  // of 1000 times as many
    EXPECT_GE(cost->seconds_per_message, 0) << to;
  }
}

TANDEM_ON_DEVICE_TYPES(CopyCostTest);

}  // namespace
}  // namespace tandem::copy_cost_test
