#include "core/model/hidden_matrices.h"

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/meta/shapes.h"
#include "core/model/layer_list.h"
#include "models/layers/basic_layers.h"
#include "models/layers/initialize.h"
#include "models/layers/module_layer.h"
#include "models/layers/token_embedding.h"

namespace tandem::hidden_matrices_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

LayerSpec Tokens() {
  return TokenEmbeddingLayer(
      "wte", 7, 4,
      [](const InitialParameter& parameter) { parameter.values.zero_(); });
}

TEST(HiddenMatricesTest, AreNoEmbeddingsAndNotTheHead) {
  const LayerSpecs specs = {Tokens(), LinearLayer("fc1", 4, 5),
                            ReluLayer("relu"), LinearLayer("fc2", 5, 4),
                            LinearLayer("head", 4, 7)};
  EXPECT_THAT(HiddenMatrices(MakeLayers(specs, 1)),
              ElementsAre("fc1.weight", "fc2.weight"));
  const MetaScope no_values;
  EXPECT_THAT(HiddenMatrices(MakeLayers(specs, 1)),
              ElementsAre("fc1.weight", "fc2.weight"));
}

TEST(HiddenMatricesTest, AreOfTwoDimensions) {
  Conv2dShape shape;
  shape.in_channels = 3;
  shape.out_channels = 4;
  shape.kernel_size = 3;
  const LayerSpecs specs = {
      Conv2dLayer("conv", shape), BatchNorm2dLayer("bn", 4),
      FlattenLayer("flatten"),    LinearLayer("fc", 4, 5),
      LayerNormLayer("norm", 5),  LinearLayer("head", 5, 2),
      FlattenLayer("end")};
  EXPECT_THAT(HiddenMatrices(MakeLayers(specs, 1)), ElementsAre("fc.weight"));
}

// Under no name.
TEST(HiddenMatricesTest, AreNotTiedToOneOfTheOthers) {
  const LayerSpec inner = LinearLayer("inner", 4, 4);
  const LayerSpecs specs = {Tokens(), inner, LinearLayer("fc", 4, 4),
                            TiedLinearLayer("twin", inner, "inner.weight"),
                            TiedLinearLayer("lm_head", Tokens(), "wte.weight")};
  EXPECT_THAT(HiddenMatrices(MakeLayers(specs, 1)),
              ElementsAre("fc.weight", "inner.weight", "twin.weight"));
  LayerSpecs ending = specs;
  ending.pop_back();
  EXPECT_THAT(HiddenMatrices(MakeLayers(ending, 1)), ElementsAre("fc.weight"));
}

// A layer of PyTorch's modules.
class Encoder : public torch::nn::Module {
 public:
  Encoder()
      : embedding_(register_module("embedding", torch::nn::Embedding(7, 4))),
        fc_(register_module("fc", torch::nn::Linear(4, 5))),
        frozen_(register_module("frozen", torch::nn::Linear(4, 5))) {
    frozen_->weight.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) { return fc_(embedding_(x)); }

 private:
  torch::nn::Embedding embedding_;
  torch::nn::Linear fc_;
  torch::nn::Linear frozen_;
};

TEST(HiddenMatricesTest, EmbeddingsWithinALayerAreFound) {
  const LayerSpecs specs = {
      ModuleLayer<Encoder>("encoder", "Encoder",
                           [] { return std::make_shared<Encoder>(); }),
      LinearLayer("head", 5, 2)};
  EXPECT_THAT(HiddenMatrices(MakeLayers(specs, 1)),
              ElementsAre("encoder.fc.weight"));
}

TEST(HiddenMatricesTest, OneLayerIsAHead) {
  EXPECT_THAT(HiddenMatrices(MakeLayers({LinearLayer("fc", 4, 5)}, 1)),
              IsEmpty());
  EXPECT_THAT(HiddenMatrices({}), IsEmpty());
}

}  // namespace
}  // namespace tandem::hidden_matrices_test
