// What torchvision_parity_test cannot say: bits, strides and initial values.

#include "models/resnet.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/module.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/models/state_shapes.h"

namespace tandem::resnet_test {
namespace {

at::Tensor Images(at::IntArrayRef shape) {
  return at::linspace(-9, 40, c10::multiply_integers(shape)).sin().view(shape);
}

// The obvious composition, by state names, in training mode.
class Oracle {
 public:
  explicit Oracle(const LayerList& layers) : state_(ParametersByName(layers)) {}

  at::Tensor ConvNorm(const at::Tensor& x, const std::string& conv,
                      const std::string& norm, int64_t stride) {
    const at::Tensor& weight = state_.at(conv + ".weight");
    const int64_t padding = weight.size(2) / 2;
    return at::batch_norm(at::conv2d(x, weight, {}, {stride, stride},
                                     at::IntArrayRef{padding, padding}),
                          state_.at(norm + ".weight"),
                          state_.at(norm + ".bias"), {}, {}, true, 0.1, 1e-5,
                          false);
  }

  at::Tensor BasicBlock(const at::Tensor& x, const std::string& name,
                        int64_t stride) {
    at::Tensor y = ConvNorm(x, name + ".conv1", name + ".bn1", stride).relu();
    y = ConvNorm(y, name + ".conv2", name + ".bn2", 1);
    return (y + Shortcut(x, name + ".downsample", stride)).relu();
  }

  at::Tensor Bottleneck(const at::Tensor& x, const std::string& name,
                        int64_t stride) {
    at::Tensor y = ConvNorm(x, name + ".conv1", name + ".bn1", 1).relu();
    y = ConvNorm(y, name + ".conv2", name + ".bn2", stride).relu();
    y = ConvNorm(y, name + ".conv3", name + ".bn3", 1);
    return (y + Shortcut(x, name + ".downsample", stride)).relu();
  }

  at::Tensor Resnet18(const at::Tensor& images) {
    at::Tensor x = ConvNorm(images, "conv1", "bn1", 2).relu();
    x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
    for (int group = 1; group <= 4; ++group) {
      const std::string name = "layer" + std::to_string(group);
      x = BasicBlock(x, name + ".0", group == 1 ? 1 : 2);
      x = BasicBlock(x, name + ".1", 1);
    }
    x = at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
    return at::linear(x, state_.at("fc.weight"), state_.at("fc.bias"));
  }

 private:
  at::Tensor Shortcut(const at::Tensor& x, const std::string& name,
                      int64_t stride) {
    if (state_.count(name + ".0.weight") == 0) return x;
    return ConvNorm(x, name + ".0", name + ".1", stride);
  }

  std::map<std::string, at::Tensor> state_;
};

// In double: in float32 the ways differ that sums are taken, and the network
// makes much of rounding.
TEST(ResnetTest, ComputesTheObviousComposition) {
  const LayerList layers = MakeLayers(Resnet18({1, 10}), 1);
  for (const Layer& layer : layers) {
    if (layer.module != nullptr) layer.module->to(at::kDouble);
  }
  const at::Tensor images = Images({3, 1, 28, 28}).to(at::kDouble);
  EXPECT_TRUE(at::allclose(Forward(layers, images),
                           Oracle(layers).Resnet18(images), 1e-9, 1e-9));
}

TEST(ResnetBlockTest, HasTheBitsOfTheObviousComposition) {
  const at::Tensor x = Images({2, 8, 7, 5});
  for (int64_t stride : {1, 2}) {
    for (int64_t channels : {2, 8}) {
      const LayerList basic = {BasicBlock("b", 8, channels, stride).make(1)};
      EXPECT_TRUE(
          Forward(basic, x).equal(Oracle(basic).BasicBlock(x, "b", stride)));
      const LayerList wide = {Bottleneck("b", 8, channels, stride).make(1)};
      EXPECT_TRUE(
          Forward(wide, x).equal(Oracle(wide).Bottleneck(x, "b", stride)));
    }
  }
}

TEST(ResnetBlockTest, ProjectsTheShortcutWhereTheShapeChanges) {
  const auto projects = [](const LayerSpec& spec) {
    return ParameterShapes({spec}).count("b.downsample.0.weight") == 1;
  };
  EXPECT_FALSE(projects(BasicBlock("b", 8, 8, 1)));
  EXPECT_TRUE(projects(BasicBlock("b", 8, 8, 2)));
  EXPECT_TRUE(projects(BasicBlock("b", 8, 4, 1)));
  EXPECT_FALSE(projects(Bottleneck("b", 8, 2, 1)));
  EXPECT_TRUE(projects(Bottleneck("b", 8, 8, 1)));
}

TEST(ResnetTest, IsAListOfStemBlocksAndHead) {
  const std::vector<std::string> expected = {
      "conv1",    "bn1",      "relu",     "maxpool",  "layer1.0",
      "layer1.1", "layer2.0", "layer2.1", "layer3.0", "layer3.1",
      "layer4.0", "layer4.1", "avgpool",  "flatten",  "fc"};
  EXPECT_EQ(LayerNames(Resnet18({3, 10})), expected);
  EXPECT_EQ(Resnet34({3, 10}).size(), 4u + 16 + 3);
  EXPECT_EQ(Resnet50({3, 10}).size(), 4u + 16 + 3);
  EXPECT_EQ(Resnet18({3, 10})[4].type, "BasicBlock");
  EXPECT_EQ(Resnet50({3, 10})[4].type, "Bottleneck");
}

TEST(ResnetTest, WidthIsThatOfTheStemAndTheFirstGroup) {
  ResnetOptions options;
  options.classes = 5;
  const auto wide = ParametersByName(MakeLayers(Resnet50(options), 1));
  EXPECT_EQ(wide.at("fc.weight").sizes(), (std::vector<int64_t>{5, 2048}));
  options.width = 8;
  const auto narrow = ParametersByName(MakeLayers(Resnet18(options), 1));
  EXPECT_EQ(narrow.at("conv1.weight").size(0), 8);
  EXPECT_EQ(narrow.at("bn1.bias").size(0), 8);
  EXPECT_EQ(narrow.at("layer1.1.conv2.weight").size(0), 8);
  EXPECT_EQ(narrow.at("fc.weight").sizes(), (std::vector<int64_t>{5, 64}));
}

// Convolutions from N(0, 2 / fan_out); the standard deviation of n draws is
// within 5 / sqrt(2 n) of that, relatively.
TEST(ResnetTest, ConvolutionsAreKaimingNormalOverFanOut) {
  const LayerList layers = MakeLayers(Resnet50({3, 10}), 1);
  for (const auto& item : NamedParameters(layers)) {
    const at::Tensor& values = item.second;
    if (values.dim() != 4) continue;
    const double fan_out = values.numel() / values.size(1);
    const double stddev = std::sqrt(2 / fan_out);
    const double root_n = std::sqrt(values.numel());
    EXPECT_NEAR(values.std().item<double>() / stddev, 1, 3.6 / root_n)
        << item.first;
    EXPECT_NEAR(values.mean().item<double>() / stddev, 0, 5 / root_n)
        << item.first;
    EXPECT_GT(values.abs().max().item<double>(), 3 * stddev) << item.first;
  }
}

TEST(ResnetTest, NormalizationAndHeadArePytorchs) {
  const LayerList layers = MakeLayers(Resnet18({3, 10}), 1);
  for (const auto& item : NamedParameters(layers)) {
    if (item.second.dim() != 1 || item.first == "fc.bias") continue;
    const double value = absl::EndsWith(item.first, "weight") ? 1 : 0;
    EXPECT_TRUE(item.second.eq(value).all().item<bool>()) << item.first;
  }
  const at::Tensor head = ParametersByName(layers).at("fc.weight");
  const double bound = 1 / std::sqrt(512);
  EXPECT_LE(head.abs().max().item<double>(), bound);
  EXPECT_NEAR(head.std().item<double>(), bound / std::sqrt(3), 0.02 * bound);
}

}  // namespace
}  // namespace tandem::resnet_test
