#include "core/base/tensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace tandem::tensors_test {
namespace {

TEST(MultiplyInPlaceTest, RoundsTheProductAlone) {
  for (const c10::ScalarType dtype :
       {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    const at::Tensor numbers = at::arange(256).to(dtype);
    const at::Tensor product = numbers.clone();
    MultiplyInPlace(product, 1.0 / 3);
    const auto opmath = dtype == at::kDouble ? at::kDouble : at::kFloat;
    EXPECT_TRUE(at::equal(product, numbers.to(opmath).mul(1.0 / 3).to(dtype)))
        << dtype;
    EXPECT_EQ(product.scalar_type(), dtype);
  }
}

// When this fails, LibTorch's own will do.
TEST(MultiplyInPlaceTest, LibTorchsRoundsTheNumberToo) {
  const at::Tensor numbers = at::arange(256).to(at::kBFloat16);
  EXPECT_FALSE(at::equal(numbers.clone().mul_(1.0 / 3), numbers.mul(1.0 / 3)));
}

TEST(ViewedLeafTest, IsBehindAViewOfAllOfIt) {
  const at::Tensor leaf = at::ones({3, 3}).requires_grad_(true);
  EXPECT_TRUE(ViewedLeaf(leaf).is_same(leaf));
  EXPECT_TRUE(ViewedLeaf(leaf.view_as(leaf)).is_same(leaf));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(ViewedLeaf(leaf.view_as(leaf)).is_same(leaf));
}

TEST(ViewedLeafTest, IsNotBehindAViewOfAPartOrAnother) {
  const at::Tensor leaf = at::ones({3, 3}).requires_grad_(true);
  const at::Tensor computed = leaf.mul(2);
  for (const at::Tensor& other :
       {leaf.narrow(0, 0, 2), leaf.t(), leaf.view({9}), computed,
        computed.view_as(computed)}) {
    EXPECT_TRUE(ViewedLeaf(other).is_same(other));
  }
}

}  // namespace
}  // namespace tandem::tensors_test
