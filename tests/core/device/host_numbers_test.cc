#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/device/host_memory.h"
#include "core/testing/device_types.h"

namespace tandem::host_numbers_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class HostNumbersTest : public DeviceTypeTest {};

TEST_P(HostNumbersTest, TensorsOfAnyShapeTypeAndDevice) {
  const std::vector<c10::Device> devices = Devices(2);
  EXPECT_THAT(ReadNumbers({}), IsEmpty());
  EXPECT_THAT(ReadNumbers({at::arange(4).view({2, 2}).t().to(devices[1]),
                           at::full({}, 0.5, at::kFloat),
                           at::full({1}, 1e300, at::kDouble).to(devices[0]),
                           at::full({0}, 7.).to(devices[1]),
                           at::full({1}, true, at::kBool).to(devices[1])}),
              ElementsAre(0, 2, 1, 3, 0.5, 1e300, 1));
}

TEST_P(HostNumbersTest, GradientsAreNoHindrance) {
  const at::Tensor x = at::full({2}, 3.).to(TestDevice()).requires_grad_();
  EXPECT_THAT(ReadNumbers({x, x}), ElementsAre(3, 3, 3, 3));
}

TANDEM_ON_DEVICE_TYPES(HostNumbersTest);

}  // namespace
}  // namespace tandem::host_numbers_test
