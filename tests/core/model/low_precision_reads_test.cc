#include "core/model/low_precision_reads.h"

#include <ATen/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "core/model/layer.h"

namespace tandem::low_precision_reads_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Reads its weight in low precision alone, and its bias as it is.
struct Reader : torch::nn::Module, ReadsLowPrecision {
  explicit Reader(const at::Tensor& weight = at::ones({2})) {
    register_parameter("weight", weight);
    register_parameter("bias", at::ones({2}));
  }
  std::vector<std::string> low_precision_parameters() const override {
    return {"weight"};
  }
};

// Reads its weight in both ways.
struct Plain : torch::nn::Module {
  explicit Plain(const at::Tensor& weight) {
    register_parameter("weight", weight);
  }
};

struct Block : torch::nn::Module {
  explicit Block(
      const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
    for (size_t i = 0; i < modules.size(); ++i) {
      register_module("m" + std::to_string(i), modules[i]);
    }
  }
};

Layer LayerOf(const std::string& name,
              const std::shared_ptr<torch::nn::Module>& module) {
  return {name, module, nullptr};
}

at::Tensor Weight() { return at::ones({2}).set_requires_grad(true); }

TEST(LowPrecisionReadsTest, AreNamedByTheLayerAndItsModules) {
  const auto block =
      std::make_shared<Block>(std::vector<std::shared_ptr<torch::nn::Module>>{
          std::make_shared<Reader>(), std::make_shared<Plain>(Weight())});
  EXPECT_THAT(
      LowPrecisionParameters({LayerOf("fc", std::make_shared<Reader>()),
                              LayerOf("relu", nullptr), LayerOf("h.0", block)}),
      ElementsAre("fc.weight", "h.0.m0.weight"));
  EXPECT_THAT(LowPrecisionParameters({}), IsEmpty());
}

// The other one may need the parameter itself.
TEST(LowPrecisionReadsTest, WhatAnotherModuleHasAsWellIsNoneOfThem) {
  const at::Tensor shared = Weight();
  EXPECT_THAT(
      LowPrecisionParameters({LayerOf("wte", std::make_shared<Plain>(shared)),
                              LayerOf("head", std::make_shared<Reader>(shared)),
                              LayerOf("fc", std::make_shared<Reader>())}),
      ElementsAre("fc.weight"));
  const auto block =
      std::make_shared<Block>(std::vector<std::shared_ptr<torch::nn::Module>>{
          std::make_shared<Reader>(shared), std::make_shared<Plain>(shared),
          std::make_shared<Reader>()});
  EXPECT_THAT(LowPrecisionParameters({LayerOf("block", block)}),
              ElementsAre("block.m2.weight"));
  const auto readers =
      std::make_shared<Block>(std::vector<std::shared_ptr<torch::nn::Module>>{
          std::make_shared<Reader>(shared), std::make_shared<Reader>(shared)});
  EXPECT_THAT(LowPrecisionParameters({LayerOf("block", readers)}), IsEmpty());
}

}  // namespace
}  // namespace tandem::low_precision_reads_test
