#include "core/model/layer_flow.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tandem::layer_flow_test {
namespace {

bool IsAligned(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64 == 0;
}

// [3, 4], columns one after the other in memory.
at::Tensor Transposed(const at::Tensor& x) { return (x * 2).transpose(0, 1); }

TEST(LayerBorderTest, AGradientComesBackInTheTensorsStrides) {
  const at::Tensor x = at::ones({4, 3}).requires_grad_();
  const at::Tensor before = Transposed(x);
  const at::Tensor behind = AcrossBorder(before);
  EXPECT_EQ(behind.const_data_ptr(), before.const_data_ptr());
  EXPECT_EQ(behind.strides(), before.strides());
  at::Tensor came;
  before.register_hook(
      [&came](const at::Tensor& gradient) { came = gradient; });
  const at::Tensor weights = at::arange(12, at::kFloat).view({3, 4});
  (behind * weights).sum().backward();
  ASSERT_TRUE(came.defined());
  EXPECT_EQ(came.strides(), before.strides());
  EXPECT_TRUE(came.equal(weights));
  EXPECT_TRUE(x.grad().equal(weights.t() * 2));
}

// The gradients of two leaves are so, each of which is summed on its own.
TEST(LayerBorderTest, WhatComesForOneTensorIsSummedByBorder) {
  const auto number = [](float value) { return at::full({1}, value); };
  const auto gradient = [&](bool has_borders) {
    const at::Tensor x = at::ones({1}).requires_grad_();
    const at::Tensor y = x * 1;
    const at::Tensor skip = has_borders ? AcrossBorder(y) : y;
    const at::Tensor values = has_borders ? AcrossBorder(y) : y;
    const at::Tensor sum = values * number(1e8F) + values * number(-1e8F);
    (sum + skip * number(1)).sum().backward();
    return x.grad().item<float>();
  };
  EXPECT_EQ(gradient(/*has_borders=*/true), 1);
  EXPECT_EQ(gradient(/*has_borders=*/false), 0);
}

TEST(LayerBorderTest, WhatHasGapsOrOverlapsIsCopied) {
  const at::Tensor x = at::ones({4, 3}).requires_grad_();
  const at::Tensor row = AcrossBorder((x * 2).select(1, 0));
  EXPECT_TRUE(row.is_contiguous());
  row.sum().backward();
  EXPECT_TRUE(x.grad().select(1, 0).equal(at::full({4}, 2.0F)));
  EXPECT_EQ(x.grad().select(1, 1).count_nonzero().item<int64_t>(), 0);
  EXPECT_TRUE(Dense(at::ones({1}).expand({5})).is_contiguous());
}

TEST(LayerBorderTest, MemoryBeginsOnALine) {
  const at::Tensor x = at::arange(33, at::kFloat);
  const at::Tensor part = x.narrow(0, 1, 32);
  EXPECT_FALSE(IsAligned(part));
  EXPECT_TRUE(IsAligned(Settled(part)));
  EXPECT_TRUE(Settled(part).equal(part));
  EXPECT_TRUE(Settled(x).is_same(x));
}

TEST(LayerBorderTest, WhatIsBehindMayBeWrittenTo) {
  const at::Tensor x = at::ones({4, 3}).requires_grad_();
  at::Tensor behind = AcrossBorder(Transposed(x));
  behind.mul_(3).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::full({4, 3}, 6.0F)));
}

TEST(LayerBorderTest, WithoutAGradientThereIsNoNode) {
  const at::Tensor tokens = at::arange(4);
  EXPECT_TRUE(AcrossBorder(tokens).is_same(tokens));
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::ones({4}).requires_grad_();
  EXPECT_TRUE(AcrossBorder(x).is_same(x));
}

TEST(LayerBorderTest, ALayersOwnSkipsCrossWithItsValues) {
  const at::Tensor x = at::ones({4}).requires_grad_();
  Layer layer;
  layer.links.stash = {"left"};
  LayerFlow flow = {x * 1, {{"left", x * 2}, {"passing", x * 3}}};
  const LayerFlow before = flow;
  CrossBorder(layer, flow);
  EXPECT_FALSE(flow.values.is_same(before.values));
  EXPECT_FALSE(flow.skips.at("left").is_same(before.skips.at("left")));
  EXPECT_TRUE(flow.skips.at("passing").is_same(before.skips.at("passing")));
}

}  // namespace
}  // namespace tandem::layer_flow_test
