#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "core/base/tensors.h"

namespace tandem::viewed_leaf_test {
namespace {

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
}  // namespace tandem::viewed_leaf_test
