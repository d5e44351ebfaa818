#include "models/layers/basic_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "models/layers/token_embedding.h"
#include "tests/models/rounding.h"

namespace tandem::basic_layers_test {
namespace {

at::Tensor Input(at::IntArrayRef shape) {
  const int64_t numel = c10::multiply_integers(shape);
  return at::linspace(-3, 40, numel).sin().view(shape);
}

// A layer, made, and its tensors by name.
struct Made {
  explicit Made(const LayerSpec& spec)
      : type(spec.type), layer(spec.make(/*seed=*/5)) {
    for (const auto& item : NamedParameters({layer})) state.insert(item);
    for (const auto& item : NamedBuffers({layer})) state.insert(item);
  }
  std::string type;
  Layer layer;
  std::map<std::string, at::Tensor> state;
};

TEST(BasicLayersTest, Linear) {
  Made made(LinearLayer("fc", 5, 3));
  EXPECT_EQ(made.type, "Linear");
  EXPECT_EQ(made.layer.name, "fc");
  const at::Tensor x = Input({2, 7, 5});
  EXPECT_TRUE(made.layer.forward(x).equal(
      at::linear(x, made.state.at("fc.weight"), made.state.at("fc.bias"))));
}

TEST(BasicLayersTest, LinearWithoutBias) {
  Made made(LinearLayer("fc", 5, 3, /*bias=*/false));
  EXPECT_EQ(made.state.size(), 1u);
  const at::Tensor x = Input({2, 5});
  EXPECT_TRUE(
      made.layer.forward(x).equal(at::linear(x, made.state.at("fc.weight"))));
}

TEST(BasicLayersTest, Conv2d) {
  Conv2dShape shape;
  shape.in_channels = 3;
  shape.out_channels = 5;
  shape.kernel_size = 3;
  shape.stride = 2;
  shape.padding = 1;
  Made made(Conv2dLayer("conv", shape));
  EXPECT_EQ(made.type, "Conv2d");
  const at::Tensor x = Input({2, 3, 7, 9});
  EXPECT_TRUE(made.layer.forward(x).equal(
      at::conv2d(x, made.state.at("conv.weight"), made.state.at("conv.bias"),
                 {2, 2}, at::IntArrayRef{1, 1})));
  shape.bias = false;
  EXPECT_EQ(Made(Conv2dLayer("conv", shape)).state.size(), 1u);
}

TEST(BasicLayersTest, BatchNorm2d) {
  Made made(BatchNorm2dLayer("bn", 3));
  EXPECT_EQ(made.type, "BatchNorm2d");
  EXPECT_EQ(made.state.size(), 5u);  // num_batches_tracked among them
  const at::Tensor x = Input({2, 3, 4, 5});
  at::Tensor mean = at::zeros({3});
  at::Tensor variance = at::zeros({3}) + 1;
  const at::Tensor expected =
      at::batch_norm(x, made.state.at("bn.weight"), made.state.at("bn.bias"),
                     mean, variance, true, 0.1, 1e-5, false);
  EXPECT_TRUE(made.layer.forward(x).equal(expected));
  EXPECT_TRUE(made.state.at("bn.running_mean").equal(mean));
  EXPECT_TRUE(made.state.at("bn.running_var").equal(variance));
}

TEST(BasicLayersTest, LayerNorm) {
  Made made(LayerNormLayer("ln", 5));
  EXPECT_EQ(made.type, "LayerNorm");
  const at::Tensor x = Input({2, 3, 5});
  const at::Tensor expected = at::layer_norm(x, {5}, made.state.at("ln.weight"),
                                             made.state.at("ln.bias"), 1e-5);
  EXPECT_TRUE(IsWithinRoundings(made.layer.forward(x), expected, 16));
}

TEST(BasicLayersTest, ReluLeavesItsInputAlone) {
  Made made(ReluLayer("relu"));
  EXPECT_EQ(made.type, "ReLU");
  EXPECT_EQ(made.layer.module, nullptr);
  const at::Tensor x = Input({11});
  const at::Tensor before = x.clone();
  EXPECT_TRUE(made.layer.forward(x).equal(x.clamp_min(0)));
  EXPECT_TRUE(x.equal(before));
}

TEST(BasicLayersTest, Pools) {
  const at::Tensor x = Input({2, 3, 7, 9});
  Made max(MaxPool2dLayer("maxpool", 3, 2, 1));
  EXPECT_EQ(max.type, "MaxPool2d");
  EXPECT_TRUE(
      max.layer.forward(x).equal(at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1})));
  Made average(GlobalAvgPool2dLayer("avgpool"));
  EXPECT_EQ(average.type, "AdaptiveAvgPool2d");
  EXPECT_TRUE(
      average.layer.forward(x).equal(at::adaptive_avg_pool2d(x, {1, 1})));
}

TEST(BasicLayersTest, FlattenKeepsTheBatch) {
  Made made(FlattenLayer("flatten"));
  EXPECT_EQ(made.type, "Flatten");
  EXPECT_EQ(made.layer.forward(Input({2, 3, 5})).sizes().vec(),
            (std::vector<int64_t>{2, 15}));
}

LayerSpec Head(bool bias) { return LinearLayer("head", 3, 5, bias); }

TEST(LinearHeadTest, ALinearLayerMayBeTheLast) {
  EXPECT_TRUE(CheckEndsInLinear({Head(true)}, "a loss").ok());
  const absl::Status other =
      CheckEndsInLinear({Head(true), ReluLayer("relu")}, "a loss");
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other.message(),
            "a loss needs a model that ends in a linear layer, but this one "
            "ends in layer relu of type ReLU");
  EXPECT_THAT(CheckEndsInLinear({}, "a loss"), Says("ends in nothing"));
  LayerSpec leaves = Head(true);
  leaves.links.stash = {"skip"};
  EXPECT_FALSE(CheckEndsInLinear({leaves}, "a loss").ok());
}

TEST(LinearHeadTest, AWeightIsTakenWhereNothingIsBesideIt) {
  EXPECT_EQ(OnlyWeight(Head(false).make(3), "a loss").sizes(),
            (at::IntArrayRef{5, 3}));
  EXPECT_THROW(OnlyWeight(Head(true).make(3), "a loss"), c10::ValueError);
  EXPECT_THROW(OnlyWeight(ReluLayer("relu").make(3), "a loss"),
               c10::ValueError);
}

}  // namespace
}  // namespace tandem::basic_layers_test
