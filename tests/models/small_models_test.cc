// mlp, cnn, toy and U-Net, and models whose layers share something (weights,
// skip connections, samples).

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

#include "core/context/compute_context.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "gmock/gmock.h"
#include "models/cnn.h"
#include "models/mlp.h"
#include "models/toy.h"
#include "models/transformer/gpt.h"
#include "tests/models/state_shapes.h"

namespace tandem::small_models_test {
namespace {

using testing::ElementsAre;

Shapes MlpShapes(int64_t inputs, int64_t layers, int64_t width,
                 int64_t classes) {
  Shapes shapes;
  for (int64_t i = 1; i <= layers; ++i) {
    const std::string layer = "fc" + std::to_string(i);
    const int64_t in = i == 1 ? inputs : width;
    const int64_t out = i == layers ? classes : width;
    shapes[layer + ".weight"] = {out, in};
    shapes[layer + ".bias"] = {out};
  }
  return shapes;
}

TEST(MlpTest, HasTheNamedSizes) {
  EXPECT_EQ(ParameterShapes(MlpSmall(784, 10)), MlpShapes(784, 8, 64, 10));
  EXPECT_EQ(ParameterShapes(MlpWide(5, 3)), MlpShapes(5, 3, 2048, 3));
  EXPECT_EQ(ParameterShapes(MlpDeep(5, 3)), MlpShapes(5, 16, 512, 3));
}

TEST(MlpTest, OneLayerIsALinearModel) {
  EXPECT_THAT(LayerNames(Mlp({7, 1, 64, 3})), ElementsAre("flatten", "fc1"));
  EXPECT_EQ(ParameterShapes(Mlp({7, 1, 64, 3})), MlpShapes(7, 1, 64, 3));
}

TEST(MlpTest, IsLinearLayersWithReluBetween) {
  const LayerList layers = MakeLayers(Mlp({6, 3, 4, 2}), 1);
  EXPECT_THAT(LayerNames(Mlp({6, 3, 4, 2})),
              ElementsAre("flatten", "fc1", "relu1", "fc2", "relu2", "fc3"));
  auto state = ParametersByName(layers);
  const at::Tensor input = at::linspace(-1, 1, 30).view({5, 2, 3});
  at::Tensor x = input.flatten(1);
  x = at::linear(x, state["fc1.weight"], state["fc1.bias"]).relu();
  x = at::linear(x, state["fc2.weight"], state["fc2.bias"]).relu();
  x = at::linear(x, state["fc3.weight"], state["fc3.bias"]);
  EXPECT_TRUE(Forward(layers, input).equal(x));
}

TEST(CnnTest, HasTheNamedLayersAndShapes) {
  EXPECT_THAT(LayerNames(Cnn(CnnOptions())),
              ElementsAre("conv1", "relu1", "pool1", "conv2", "relu2", "pool2",
                          "flatten", "fc1", "relu3", "fc2"));
  EXPECT_EQ(ParameterShapes(Cnn(CnnOptions())),
            (Shapes{{"conv1.weight", {16, 1, 3, 3}},
                    {"conv1.bias", {16}},
                    {"conv2.weight", {32, 16, 3, 3}},
                    {"conv2.bias", {32}},
                    {"fc1.weight", {128, 32 * 7 * 7}},
                    {"fc1.bias", {128}},
                    {"fc2.weight", {10, 128}},
                    {"fc2.bias", {10}}}));
}

TEST(CnnTest, TakesImagesOfAnySize) {
  for (int64_t height : {4, 5, 31}) {
    const LayerList layers = MakeLayers(Cnn({2, height, 13, 3}), 1);
    const at::Tensor input =
        at::linspace(-1, 1, 2 * 2 * height * 13).view({2, 2, height, 13});
    EXPECT_EQ(Forward(layers, input).sizes().vec(),
              (std::vector<int64_t>{2, 3}));
  }
}

TEST(ToyTest, IsTheTutorials) {
  const Shapes expected = {{"net1.weight", {10, 10}},
                           {"net1.bias", {10}},
                           {"net2.weight", {5, 10}},
                           {"net2.bias", {5}}};
  for (const LayerSpecs& specs : {ToyModel(), ToyMpModel()}) {
    EXPECT_THAT(LayerNames(specs), ElementsAre("net1", "relu", "net2"));
    EXPECT_EQ(ParameterShapes(specs), expected);
  }
  EXPECT_EQ(ToyMpModel()[kToyMpCut].name, "net2");
}

constexpr uint64_t kSeed = 5;

GptOptions SmallGpt(bool ties_lm_head) {
  GptOptions options;
  options.layers = 1;
  options.width = 12;
  options.heads = 3;
  options.context = 7;
  options.vocabulary = 11;
  options.ties_lm_head = ties_lm_head;
  return options;
}

const char kEmbedding[] = "transformer.wte.weight";
const char kHead[] = "lm_head.weight";

TEST(TiedGpt, EmbeddingAndHeadAreOneParameter) {
  const auto state = ParametersByName(MakeLayers(*Gpt(SmallGpt(true)), kSeed));
  EXPECT_TRUE(state.at(kHead).is_same(state.at(kEmbedding)));
  const auto untied =
      ParametersByName(MakeLayers(*Gpt(SmallGpt(false)), kSeed));
  ASSERT_EQ(state.size(), untied.size());
  for (const auto& [name, tensor] : untied) {
    if (name == kHead) continue;
    EXPECT_TRUE(state.at(name).equal(tensor)) << name;
  }
}

TEST(TiedGpt, TheHeadAloneBeginsWithTheEmbeddingsValues) {
  const LayerSpecs specs = *Gpt(SmallGpt(true));
  const auto whole = ParametersByName(MakeLayers(specs, kSeed));
  const auto alone = ParametersByName(MakeLayers({specs.back()}, kSeed));
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_TRUE(alone.at(kHead).equal(whole.at(kEmbedding)));
}

TEST(TiedGpt, ItsGradientIsTheSumOfBoths) {
  const LayerList tied = MakeLayers(*Gpt(SmallGpt(true)), kSeed);
  const LayerList untied = MakeLayers(*Gpt(SmallGpt(false)), kSeed);
  auto expected = ParametersByName(untied);
  expected.at(kHead).detach().copy_(expected.at(kEmbedding).detach());
  const at::Tensor tokens = at::arange(14, at::kLong).view({2, 7}) % 11;
  Forward(tied, tokens).square().sum().backward();
  Forward(untied, tokens).square().sum().backward();
  EXPECT_TRUE(ParametersByName(tied).at(kHead).grad().equal(
      expected.at(kHead).grad() + expected.at(kEmbedding).grad()));
}

TEST(UnetTiny, ItsSkipsAreNested) {
  const LayerSpecs specs = UnetTiny({3, 7});
  const std::vector<LayerLinks> links = LinksByLayer(specs);
  EXPECT_TRUE(CheckSkips(links).ok());
  const std::vector<std::string> outer = {"skip1"};
  const std::vector<std::string> both = {"skip1", "skip2"};
  EXPECT_EQ(SkipsBefore(links, 1), outer);
  EXPECT_EQ(SkipsBefore(links, 2), both);
  EXPECT_EQ(SkipsBefore(links, 4), both);  // before up2
  EXPECT_EQ(SkipsBefore(links, 5), outer);
  EXPECT_TRUE(SkipsBefore(links, 6).empty());
}

// The obvious composition, on a size that does not halve twice.
TEST(UnetTiny, IsAUnet) {
  const LayerList layers = MakeLayers(UnetTiny({3, 7}), kSeed);
  const auto state = ParametersByName(layers);
  const auto conv = [&state](const std::string& name, const at::Tensor& x) {
    return at::conv2d(x, state.at(name + ".weight"), state.at(name + ".bias"),
                      /*stride=*/1, /*padding=*/1)
        .relu();
  };
  const auto enlarged = [](const at::Tensor& x, const at::Tensor& like) {
    return at::upsample_nearest2d(x, {like.size(2), like.size(3)});
  };
  const at::Tensor x = at::randn({2, 3, 11, 6});
  const at::Tensor skip1 = conv("down1.conv", x);
  const at::Tensor skip2 = conv("down2.conv", at::max_pool2d(skip1, {2, 2}));
  at::Tensor y = conv("middle", at::max_pool2d(skip2, {2, 2}));
  y = conv("up2.conv", at::cat({enlarged(y, skip2), skip2}, 1));
  y = conv("up1.conv", at::cat({enlarged(y, skip1), skip1}, 1));
  y = at::linear(y.mean({2, 3}), state.at("fc.weight"), state.at("fc.bias"));
  EXPECT_TRUE(Forward(layers, x).allclose(y, 1e-5, 1e-6));
}

class MlpDropoutTest : public testing::Test {
 protected:
  MlpDropoutTest() {
    MlpDropoutOptions options;
    options.inputs = 6;
    options.classes = 5;
    layers_ = MakeLayers(MlpDropout(options), kSeed);
  }
  at::Tensor Output(const at::Tensor& x, const Samples& samples) const {
    const SampleScope scope(samples);
    return Forward(layers_, x).detach();
  }

  LayerList layers_;
  const at::Tensor x_ = at::randn({8, 2, 3});
};

TEST_F(MlpDropoutTest, MicrobatchesGiveWhatTheBatchGives) {
  const at::Tensor whole = Output(x_, {kSeed, 4, 16});
  const at::Tensor parts =
      at::cat({Output(x_.narrow(0, 0, 3), {kSeed, 4, 16}),
               Output(x_.narrow(0, 3, 5), {kSeed, 4, 19})});
  EXPECT_TRUE(parts.allclose(whole, 1e-5, 1e-6));
  EXPECT_FALSE(Output(x_, {kSeed, 5, 16}).allclose(whole, 1e-2, 1e-2));
}

TEST_F(MlpDropoutTest, EachBlockDropsForItself) {
  const LayerSpec a = MlpBlock("a", 4, 0.5);
  Layer other = MlpBlock("b", 4, 0.5).make(kSeed);
  const Layer layer = a.make(kSeed);
  for (size_t i = 0; i < layer.module->parameters().size(); ++i) {
    other.module->parameters()[i].detach().copy_(
        layer.module->parameters()[i].detach());
  }
  const at::Tensor x = at::randn({9, 4});
  const SampleScope scope({kSeed, 0, 0});
  EXPECT_TRUE(layer.forward(x).equal(layer.forward(x)));
  EXPECT_FALSE(layer.forward(x).equal(other.forward(x)));
}

TEST_F(MlpDropoutTest, EvaluationDropsNothing) {
  SetTraining(layers_, false);
  EXPECT_TRUE(Output(x_, {kSeed, 4, 16}).equal(Forward(layers_, x_).detach()));
}

}  // namespace
}  // namespace tandem::small_models_test
