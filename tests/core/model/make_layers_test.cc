
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "core/model/layer_list.h"
#include "core/model/parameter_traits.h"
#include "core/model/training_modes.h"
#include "models/layers/basic_layers.h"
#include "models/layers/initialize.h"
#include "models/layers/module_layer.h"
#include "models/layers/token_embedding.h"

namespace tandem::make_layers_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const LayerSpecs& specs) {
  return std::string(MakeModelLayers(specs, 1).status().message());
}

TEST(MakeLayersTest, MakesAModel) {
  const auto layers =
      MakeModelLayers({LinearLayer("a", 2, 3), ReluLayer("b")}, 1);
  ASSERT_TRUE(layers.ok()) << layers.status();
  EXPECT_EQ(layers->size(), 2u);
}

TEST(MakeLayersTest, TwoLayersOfOneNameAreNamed) {
  EXPECT_EQ(ErrorOf({LinearLayer("fc", 2, 3), ReluLayer("r"),
                     LinearLayer("fc", 3, 2)}),
            "layers 0 and 2 are both called 'fc': each needs a name of its "
            "own, which its parameters' names and initial values go by");
}

struct Drawn : torch::nn::Module {
  Drawn() { weight = register_parameter("weight", at::randn({3})); }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight;
};

// Any rank makes the same, whatever was drawn before.
TEST(MakeLayersTest, AConstructorsValuesStayAndAreTheSameForEverybody) {
  const auto spec = [](const std::string& name) {
    return ModuleLayer<Drawn>(
        name, "Drawn", [] { return std::make_shared<Drawn>(); },
        KeepsItsValues);
  };
  const auto weight = [](const LayerSpec& made, uint64_t seed) {
    return made.make(seed).module->parameters()[0];
  };
  const at::Tensor first = weight(spec("a"), 1);
  at::randn({7});
  EXPECT_TRUE(weight(spec("a"), 1).equal(first));
  EXPECT_FALSE(weight(spec("b"), 1).equal(first));
  EXPECT_FALSE(weight(spec("a"), 2).equal(first));
}

class Positions : public torch::nn::Module {
 public:
  Positions() { register_parameter("pos_embed", at::empty({3})); }
  at::Tensor forward(const at::Tensor& x) { return x + parameters()[0]; }
};

TEST(MakeLayersTest, AParameterWithoutInitialValuesIsNamed) {
  const LayerSpec spec = ModuleLayer<Positions>(
      "stem", "Positions", [] { return std::make_shared<Positions>(); });
  EXPECT_THAT(ErrorOf({spec}),
              AllOf(HasSubstr("stem.pos_embed"), HasSubstr("Positions"),
                    HasSubstr("rule")));
}

TEST(MakeLayersTest, AWeightThatIsTiedToNothingIsNamed) {
  const LayerSpec head =
      TiedLinearLayer("head", LinearLayer("fc", 2, 3), "fc.kernel");
  EXPECT_THAT(ErrorOf({head}),
              HasSubstr("layer fc has no parameter fc.kernel"));
}

TEST(MakeLayersTest, ASpecThatMakesNothingIsNamed) {
  EXPECT_THAT(ErrorOf({{"empty", "Empty", nullptr}}),
              HasSubstr("layer empty has no make"));
}

LayerSpec LinearSpec(const TraitsByName& traits) {
  LayerSpec spec;
  spec.name = "fc";
  spec.type = "Linear";
  spec.make = [](uint64_t) {
    auto linear = std::make_shared<torch::nn::LinearImpl>(2, 3);
    return Layer{"fc", linear,
                 [linear](const at::Tensor& x) { return linear->forward(x); }};
  };
  spec.traits = traits;
  return spec;
}

TEST(ParameterTraitsTest, AreReducedOverReplicasUnlessTold) {
  const ParameterTraits usual;
  EXPECT_TRUE(usual.reduces_over("data"));
  EXPECT_FALSE(usual.reduces_over("tensor"));
  EXPECT_EQ(Describe(usual), "reduced over data, group 0");
  ParameterTraits other;
  other.reduce_axes = {"data", "context"};
  other.shard = ParameterShard{"tensor", 1};
  other.optimizer_group = 2;
  EXPECT_NE(other, usual);
  EXPECT_EQ(Describe(other),
            "reduced over data and context, dimension 1 sharded along tensor, "
            "group 2");
  other.reduce_axes.clear();
  EXPECT_THAT(Describe(other), HasSubstr("not reduced, "));
  EXPECT_EQ(EffectiveTraits({{"w", other}}, "w"), other);
  EXPECT_EQ(EffectiveTraits({{"w", other}}, "b"), usual);
}

TEST(ParameterTraitsTest, ALayerTakesThoseOfItsSpec) {
  ParameterTraits own;
  own.reduce_axes.clear();
  const auto layers = MakeModelLayers({LinearSpec({{"bias", own}})}, 1);
  ASSERT_TRUE(layers.ok()) << layers.status();
  const TraitsByName traits = NamedTraits(*layers);
  ASSERT_EQ(traits.size(), 1u);
  EXPECT_EQ(traits.at("fc.bias"), own);
}

TEST(ParameterTraitsTest, OfNoParameterAreRefusedByName) {
  const auto unknown = MakeModelLayers({LinearSpec({{"wieght", {}}})}, 1);
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("layer fc has no parameter 'wieght'"));
  ParameterTraits negative;
  negative.optimizer_group = -1;
  const auto group = MakeModelLayers({LinearSpec({{"weight", negative}})}, 1);
  EXPECT_THAT(std::string(group.status().message()),
              HasSubstr("parameter fc.weight is in optimizer group -1"));
}

struct Node : torch::nn::Module {
  std::shared_ptr<Node> Add(const std::string& name) {
    return register_module(name, std::make_shared<Node>());
  }
};

LayerList LayersOf(const std::vector<std::shared_ptr<Node>>& modules) {
  LayerList layers = {Layer{"none", nullptr, nullptr}};
  for (const auto& each : modules) {
    layers.push_back(Layer{"a", each, nullptr});
  }
  return layers;
}

TEST(TrainingModesTest, ReachAllModules) {
  const auto root = std::make_shared<Node>();
  const auto child = root->Add("child");
  const TrainingModes modes(LayersOf({root}));
  for (const bool on : {false, true, false, true}) {
    modes.Set(on);
    EXPECT_EQ(root->is_training(), on);
    EXPECT_EQ(child->is_training(), on);
  }
}

TEST(TrainingModesTest, WhatWasInEvaluationModeStaysInIt) {
  const auto root = std::make_shared<Node>();
  const auto frozen = root->Add("frozen");
  const auto below = frozen->Add("below");
  const auto trained = frozen->Add("trained");
  const auto other = root->Add("other");
  const auto layer = std::make_shared<Node>();
  frozen->eval();
  trained->train();
  layer->eval();
  const TrainingModes modes(LayersOf({root, layer}));
  for (const bool on : {true, false, true}) {
    modes.Set(on);
    EXPECT_EQ(root->is_training(), on);
    EXPECT_FALSE(frozen->is_training());
    EXPECT_FALSE(below->is_training());
    EXPECT_EQ(trained->is_training(), on);
    EXPECT_EQ(other->is_training(), on);
    EXPECT_FALSE(layer->is_training());
  }
}

// A model that keeps its BatchNorm in evaluation mode by itself.
struct Stubborn : Node {
  void train(bool on = true) override {
    Node::train(on);
    for (const auto& child : children()) child->eval();
  }
};

TEST(TrainingModesTest, AModulesOwnWayOfTrainingCounts) {
  const auto root = std::make_shared<Stubborn>();
  const auto child = root->Add("child");
  const TrainingModes modes(LayersOf({root}));
  modes.Set(true);
  EXPECT_TRUE(root->is_training());
  EXPECT_FALSE(child->is_training());
}

}  // namespace
}  // namespace tandem::make_layers_test
