#include "models/initialize.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <map>
#include <string>

#include "core/layer_list.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "models/basic_layers.h"
#include "models/resnet.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 3;

using ByName = std::map<std::string, at::Tensor>;

ByName Values(const LayerSpecs& specs) {
  const NamedTensors tensors = NamedParameters(MakeLayers(specs, kSeed));
  return ByName(tensors.begin(), tensors.end());
}

TEST(InitializeTest, ValuesDependOnNothingButSeedAndName) {
  const LayerSpecs specs = Resnet18({3, 10});
  const ByName together = Values(specs);
  at::randn({5});  // moves the default generator
  const ByName backwards = Values(LayerSpecs(specs.rbegin(), specs.rend()));
  ByName alone;
  for (const LayerSpec& spec : specs) alone.merge(Values({spec}));
  ASSERT_EQ(backwards.size(), together.size());
  ASSERT_EQ(alone.size(), together.size());
  for (const auto& item : together) {
    EXPECT_TRUE(backwards.at(item.first).equal(item.second)) << item.first;
    EXPECT_TRUE(alone.at(item.first).equal(item.second)) << item.first;
  }
}

TEST(InitializeTest, EachParameterIsDrawnFromItsOwnGenerator) {
  const ByName values = Values({LinearLayer("head.fc", 9, 7)});
  const at::Tensor expected = at::empty({7, 9}).uniform_(
      -1.0 / 3, 1.0 / 3, GeneratorFor(kSeed, "head.fc.weight"));
  EXPECT_TRUE(values.at("head.fc.weight").equal(expected));
}

TEST(InitializeTest, SameShapesUnderOtherNamesDiffer) {
  const ByName values =
      Values({LinearLayer("a", 9, 7), LinearLayer("b", 9, 7)});
  EXPECT_FALSE(values.at("a.weight").equal(values.at("b.weight")));
  EXPECT_FALSE(values.at("a.bias").equal(values.at("b.bias")));
}

TEST(InitializeTest, ParametersStayLeavesThatRequireGradients) {
  for (const auto& item : Values({LinearLayer("a", 3, 2)})) {
    EXPECT_TRUE(item.second.is_leaf() && item.second.requires_grad());
  }
}

// U(-bound, bound): fills the interval, never leaves it, mean 0 and standard
// deviation bound / sqrt(3).
void ExpectUniform(const at::Tensor& values, double bound) {
  const double rare = 5 / std::sqrt(values.numel());
  EXPECT_LE(values.abs().max().item<double>(), bound * (1 + 1e-6));
  EXPECT_NEAR(values.mean().item<double>() / bound, 0, rare);
  EXPECT_NEAR(values.std().item<double>() / (bound / std::sqrt(3)), 1, rare);
}

TEST(PytorchDefaultTest, LinearIsUniformWithinOneOverRootFanIn) {
  const ByName values = Values({LinearLayer("fc", 307, 1201)});
  ExpectUniform(values.at("fc.weight"), 1 / std::sqrt(307));
  ExpectUniform(values.at("fc.bias"), 1 / std::sqrt(307));
}

TEST(PytorchDefaultTest, ConvolutionsFanInCountsTheKernel) {
  Conv2dShape shape;
  shape.in_channels = 13;
  shape.out_channels = 509;
  shape.kernel_size = 3;
  const ByName values = Values({Conv2dLayer("conv", shape)});
  ExpectUniform(values.at("conv.weight"), 1 / std::sqrt(13 * 9));
  ExpectUniform(values.at("conv.bias"), 1 / std::sqrt(13 * 9));
}

TEST(PytorchDefaultTest, NormalizationsAreOneAndZero) {
  const ByName values =
      Values({BatchNorm2dLayer("bn", 5), LayerNormLayer("ln", 5)});
  for (const char* name : {"bn", "ln"}) {
    const std::string layer = name;
    EXPECT_TRUE(values.at(layer + ".weight").eq(1).all().item<bool>());
    EXPECT_TRUE(values.at(layer + ".bias").eq(0).all().item<bool>());
  }
}

TEST(PytorchDefaultTest, EmbeddingIsStandardNormal) {
  torch::nn::EmbeddingImpl module(311, 97);
  Initialize(module, "wte", kSeed);
  EXPECT_NEAR(module.weight.mean().item<double>(), 0, 0.03);
  EXPECT_NEAR(module.weight.std().item<double>(), 1, 0.03);
  EXPECT_GT(module.weight.abs().max().item<double>(), 3);
}

class Unknown : public torch::nn::Module {
 public:
  Unknown() { register_parameter("gain", at::empty({3})); }
};

TEST(PytorchDefaultDeathTest, AModuleWithoutARuleIsNamed) {
  Unknown module;
  EXPECT_DEATH(Initialize(module, "head", kSeed),
               "no default initial values for head.gain");
}

TEST(InitializeTest, ARuleSeesFullNamesThroughTheTree) {
  torch::nn::Module root;
  const auto branch =
      root.register_module("1", std::make_shared<torch::nn::Module>());
  branch->register_module("fc", std::make_shared<torch::nn::LinearImpl>(2, 2));
  std::string names;
  Initialize(root, "layer", kSeed, [&](const InitialParameter& parameter) {
    names += parameter.name + " ";
  });
  EXPECT_EQ(names, "layer.1.fc.weight layer.1.fc.bias ");
}

}  // namespace
}  // namespace tandem
