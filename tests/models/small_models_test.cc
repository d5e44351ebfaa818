// mlp, cnn and toy: names and shapes, stated in full.

#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/cnn.h"
#include "models/mlp.h"
#include "models/toy.h"
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

}  // namespace
}  // namespace tandem::small_models_test
