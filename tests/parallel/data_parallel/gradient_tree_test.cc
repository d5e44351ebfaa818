#include "parallel/data_parallel/gradient_tree.h"

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

namespace tandem::gradient_tree_test {
namespace {

using Tensors = std::vector<at::Tensor>;

class GradientTreeTest : public DeviceTypesAnd<int> {
 protected:
  std::vector<c10::Device> devices() const {
    return DevicesToTest(std::get<0>(GetParam()), value());
  }
  // 2^device, of sizes that are copied alone and side by side.
  Tensors Of(int device) const {
    const c10::Device its = devices()[static_cast<size_t>(device)];
    const double number = 1 << device;
    return {at::full({3, 5}, number).to(its), at::full({}, number).to(its),
            at::full({1 << 15}, number).to(its),
            at::full({2}, number, at::kDouble).to(its)};
  }
};

TEST_P(GradientTreeTest, SumsEveryDeviceOnce) {
  std::vector<Tensors> all;
  for (int i = 0; i < value(); ++i) all.push_back(Of(i));
  const Tensors own = all[0];
  const Tensors sums = SumOverDevices(all, devices());
  ASSERT_EQ(sums.size(), 4u);
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_TRUE(IsOn(sums[i], devices()[0]));
    EXPECT_TRUE(sums[i].cpu().eq((1 << value()) - 1).all().item<bool>()) << i;
    EXPECT_EQ(sums[i].sizes(), own[i].sizes());
    // What came in is as it was.
    EXPECT_TRUE(own[i].cpu().eq(1).all().item<bool>()) << i;
  }
}

// What a sum in another order would round away.
TEST_P(GradientTreeTest, InTheOrderOfABinaryTree) {
  if (value() != 3 && value() != 4) return;
  std::vector<Tensors> all;
  const std::vector<double> numbers = {1, 1e8, -1e8, 1};
  for (int i = 0; i < value(); ++i) {
    all.push_back({at::scalar_tensor(numbers[static_cast<size_t>(i)])
                       .to(devices()[static_cast<size_t>(i)])});
  }
  const float expected =
      value() == 3 ? (1.f + 1e8f) + -1e8f : (1.f + 1e8f) + (-1e8f + 1.f);
  EXPECT_EQ(SumOverDevices(all, devices())[0].item<float>(), expected);
}

TEST_P(GradientTreeTest, UndefinedOnesCountAsZero) {
  for (int missing = 0; missing < value(); ++missing) {
    std::vector<Tensors> all;
    for (int i = 0; i < value(); ++i) {
      all.push_back(Of(i));
      all.back().emplace_back();
      if (i == missing) all.back()[1].reset();
    }
    const Tensors sums = SumOverDevices(all, devices());
    EXPECT_FALSE(sums[4].defined());
    if (value() == 1) continue;
    EXPECT_EQ(sums[1].item<float>(), (1 << value()) - 1 - (1 << missing));
    EXPECT_TRUE(IsOn(sums[1], devices()[0]));
  }
}

TEST_P(GradientTreeTest, SparseOnesAndDenseOnes) {
  if (std::get<0>(GetParam()) != c10::kCPU) return;  // simulated ones have none
  const at::Tensor sparse = at::sparse_coo_tensor(
      at::full({1, 1}, 1, at::kLong), at::full({1}, 2.), {3});
  std::vector<Tensors> all;
  for (int i = 0; i < value(); ++i) {
    all.push_back({sparse, i % 2 == 0 ? sparse : at::ones({3})});
  }
  const Tensors sums = SumOverDevices(all, devices());
  EXPECT_EQ(sums[0].to_dense()[1].item<float>(), 2 * value());
  const int dense = value() / 2;
  const at::Tensor both = dense > 0 ? sums[1] : sums[1].to_dense();
  EXPECT_EQ(both[1].item<float>(), dense + 2 * (value() - dense));
  EXPECT_EQ(both[0].item<float>(), dense);
}

TANDEM_ON_DEVICE_TYPES_AND(GradientTreeTest, testing::Values(1, 2, 3, 4, 7));

}  // namespace
}  // namespace tandem::gradient_tree_test
