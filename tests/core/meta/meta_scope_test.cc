#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformer.h>

#include <optional>
#include <thread>

#include "core/meta/shapes.h"
#include "gtest/gtest.h"

namespace tandem::meta_scope_test {
namespace {

TEST(MetaScopeTest, WhatIsMadeHasAShapeAndNoStorage) {
  std::optional<MetaScope> scope;
  scope.emplace();
  const at::Tensor made = at::zeros({1 << 20, 1 << 20});
  EXPECT_TRUE(made.is_meta());
  EXPECT_EQ(made.sizes(), (at::IntArrayRef{1 << 20, 1 << 20}));
  // Whatever device is asked for.
  EXPECT_TRUE(at::ones({3}, at::device(at::kCPU)).is_meta());
  EXPECT_TRUE(at::arange(5).is_meta());
  scope.reset();
  EXPECT_TRUE(at::zeros({2}).is_cpu());
}

TEST(MetaScopeTest, ModulesOfTorchAreMadeOnMeta) {
  const MetaScope scope;
  torch::nn::Transformer transformer(
      torch::nn::TransformerOptions(1 << 14, 16, 2, 2));
  torch::nn::BatchNorm2d norm(7);
  for (const at::Tensor& each : transformer->parameters()) {
    EXPECT_TRUE(each.is_meta());
    EXPECT_TRUE(each.requires_grad());
  }
  for (const at::Tensor& each : norm->buffers()) EXPECT_TRUE(each.is_meta());
}

TEST(MetaScopeTest, OperandsStayWhereTheyAre) {
  const at::Tensor before = at::ones({3});
  const MetaScope scope;
  EXPECT_TRUE((before + before).is_cpu());
  EXPECT_EQ((before + before).sum().item<float>(), 6);
}

TEST(MetaScopeTest, IsTheCallingThreadsAndNests) {
  const MetaScope scope;
  {
    const MetaScope inner;
    EXPECT_TRUE(at::zeros({2}).is_meta());
  }
  EXPECT_TRUE(at::zeros({2}).is_meta());
  std::thread([] { EXPECT_TRUE(at::zeros({2}).is_cpu()); }).join();
}

TEST(MetaScopeTest, AForwardGivesShapes) {
  const MetaScope scope;
  torch::nn::Linear linear(1 << 18, 1 << 19);
  const at::Tensor y = linear(at::randn({1 << 16, 1 << 18}));
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{1 << 16, 1 << 19}));
}

}  // namespace
}  // namespace tandem::meta_scope_test
