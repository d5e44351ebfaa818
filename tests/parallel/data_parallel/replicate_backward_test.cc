// Sums of replicas' gradients.

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sparse_coo_tensor.h>

#include <vector>

#include "core/testing/device_types.h"
#include "gtest/gtest.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/data_parallel/replicated_state.h"

namespace tandem::replicate_backward_test {
namespace {

using Tensors = std::vector<at::Tensor>;

class GradientTreeTest : public DeviceTypesAnd<int> {
 protected:
  std::vector<c10::Device> devices() const {
    return DevicesToTest(std::get<0>(GetParam()), value());
  }
  // Of device i a tensor of so many 2^i, of several dtypes and sizes.
  std::vector<Tensors> Gradients() const {
    std::vector<Tensors> all(4);
    for (int i = 0; i < value(); ++i) {
      const c10::Device its = devices()[static_cast<size_t>(i)];
      const double number = 1 << i;
      all[0].push_back(at::full({3, 5}, number).to(its));
      all[1].push_back(at::full({}, number).to(its));
      all[2].push_back(at::full({1 << 15}, number).to(its));
      all[3].push_back(at::full({2}, number, at::kDouble).to(its));
    }
    return all;
  }
};

TEST_P(GradientTreeTest, SumsEveryDeviceOnce) {
  for (const Tensors& each : Gradients()) {
    const at::Tensor sum = SumOverDevices(each, devices());
    EXPECT_TRUE(IsOn(sum, devices()[0]));
    EXPECT_TRUE(sum.cpu().eq((1 << value()) - 1).all().item<bool>());
    EXPECT_EQ(sum.sizes(), each[0].sizes());
    // What came in is as it was.
    EXPECT_TRUE(each[0].cpu().eq(1).all().item<bool>());
  }
}

// What a sum in another order would round away.
TEST_P(GradientTreeTest, InTheOrderOfABinaryTree) {
  if (value() != 3 && value() != 4) return;
  Tensors all;
  const std::vector<double> numbers = {1, 1e8, -1e8, 1};
  for (int i = 0; i < value(); ++i) {
    all.push_back(at::scalar_tensor(numbers[static_cast<size_t>(i)])
                      .to(devices()[static_cast<size_t>(i)]));
  }
  const float expected =
      value() == 3 ? (1.f + 1e8f) + -1e8f : (1.f + 1e8f) + (-1e8f + 1.f);
  EXPECT_EQ(SumOverDevices(all, devices()).item<float>(), expected);
}

TEST_P(GradientTreeTest, UndefinedOnesCountAsZero) {
  const Tensors none(static_cast<size_t>(value()));
  EXPECT_FALSE(SumOverDevices(none, devices()).defined());
  if (value() == 1) return;
  for (int missing = 0; missing < value(); ++missing) {
    Tensors all = Gradients()[1];
    all[static_cast<size_t>(missing)].reset();
    const at::Tensor sum = SumOverDevices(all, devices());
    EXPECT_EQ(sum.item<float>(), (1 << value()) - 1 - (1 << missing));
    EXPECT_TRUE(IsOn(sum, devices()[0]));
  }
}

TEST_P(GradientTreeTest, SparseOnesAndDenseOnes) {
  if (std::get<0>(GetParam()) != c10::kCPU) return;  // simulated ones have none
  const at::Tensor sparse = at::sparse_coo_tensor(
      at::full({1, 1}, 1, at::kLong), at::full({1}, 2.), {3});
  Tensors alike, mixed;
  for (int i = 0; i < value(); ++i) {
    alike.push_back(sparse);
    mixed.push_back(i % 2 == 0 ? sparse : at::ones({3}));
  }
  const at::Tensor sum = SumOverDevices(alike, devices());
  EXPECT_EQ(sum.to_dense()[1].item<float>(), 2 * value());
  const int dense = value() / 2;
  const at::Tensor other = SumOverDevices(mixed, devices());
  const at::Tensor both = dense > 0 ? other : other.to_dense();
  EXPECT_EQ(both[1].item<float>(), dense + 2 * (value() - dense));
  EXPECT_EQ(both[0].item<float>(), dense);
}

TANDEM_ON_DEVICE_TYPES_AND(GradientTreeTest, testing::Values(1, 2, 3, 4, 7));

}  // namespace
}  // namespace tandem::replicate_backward_test
