#include "core/device/host_memory.h"

#include <ATen/Functions.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/sim/testing.h"
#include "core/testing/device_types.h"

namespace tandem::host_memory_test {
namespace {

class HostMemoryTest : public testing::TestWithParam<const char*> {
 protected:
  static c10::Device Device() {
    if (std::string(GetParam()) == "cpu") return c10::DeviceType::CPU;
    return SimDevices(2)[1];
  }
};

TEST_P(HostMemoryTest, RunsTheCpusKernels) {
  EXPECT_TRUE(RunsCpuKernels(Device().type()));
}

TEST_P(HostMemoryTest, ViewsAreTheSameMemory) {
  const at::Tensor tensor = at::arange(6, at::kFloat).view({2, 3}).to(Device());
  at::Tensor view = HostView(tensor);
  EXPECT_TRUE(view.device().is_cpu());
  EXPECT_TRUE(at::equal(view, at::arange(6, at::kFloat).view({2, 3})));
  view.mul_(2);
  EXPECT_EQ(tensor.sum().item<float>(), 30);
  tensor.zero_();
  // Asks again, which waits for zero_ where that was queued.
  EXPECT_EQ(HostView(tensor).sum().item<float>(), 0);
  EXPECT_EQ(view.data_ptr(), HostView(tensor).data_ptr());
}

TEST_P(HostMemoryTest, ViewsKeepShapeStridesAndOffset) {
  const at::Tensor whole = at::arange(24, at::kLong).view({4, 6}).to(Device());
  const at::Tensor part = whole.t().slice(0, 1, 6, 2).slice(1, 1, 4);
  const at::Tensor view = HostView(part);
  EXPECT_EQ(view.sizes(), part.sizes());
  EXPECT_EQ(view.strides(), part.strides());
  EXPECT_EQ(view.storage_offset(), part.storage_offset());
  EXPECT_EQ(view.scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(view, part.cpu()));
}

TEST_P(HostMemoryTest, EmptyTensorsHaveViews) {
  const at::Tensor view =
      HostView(at::empty({0, 3}, at::TensorOptions().device(Device())));
  EXPECT_TRUE(view.device().is_cpu());
  EXPECT_EQ(view.sizes(), at::IntArrayRef({0, 3}));
}

TEST_P(HostMemoryTest, ViewsAreOutsideOfAutograd) {
  const at::Tensor tensor =
      at::ones({3}, at::TensorOptions().device(Device())).requires_grad_();
  EXPECT_FALSE(HostView(tensor).requires_grad());
  const at::Tensor computed = at::mul(tensor, 2);
  const at::Tensor view = HostView(computed);
  EXPECT_FALSE(view.requires_grad());
  EXPECT_EQ(view.grad_fn(), nullptr);
  EXPECT_TRUE(computed.requires_grad());
}

TEST_P(HostMemoryTest, ViewsHoldTheMemory) {
  at::Tensor tensor = at::full({1000}, 7, at::TensorOptions().device(Device()));
  const at::Tensor view = HostView(tensor);
  tensor = at::Tensor();
  const at::Tensor other =
      at::zeros({1000}, at::TensorOptions().device(Device()));
  EXPECT_EQ(view.sum().item<int64_t>(), 7000);
}

INSTANTIATE_TEST_SUITE_P(On, HostMemoryTest, testing::Values("cpu", "sim"));

TEST(OtherHostMemoryTest, OtherDevicesHaveNone) {
  EXPECT_FALSE(RunsCpuKernels(c10::DeviceType::Meta));
  EXPECT_FALSE(RunsCpuKernels(c10::DeviceType::CUDA));
  const at::Tensor meta =
      at::empty({3}, at::TensorOptions().device(c10::DeviceType::Meta));
  EXPECT_FALSE(HostView(meta).defined());
}

at::Tensor Three(const at::Tensor&) { return at::ones({3}); }

TEST(OtherHostMemoryTest, ADeviceIsMadeOneByRegistration) {
  RegisterHostMemory(c10::DeviceType::Lazy, &Three);
  EXPECT_TRUE(RunsCpuKernels(c10::DeviceType::Lazy));
  EXPECT_FALSE(RunsCpuKernels(c10::DeviceType::XLA));
}

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
}  // namespace tandem::host_memory_test
