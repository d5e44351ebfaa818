#include "core/model/parameter_traits.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <memory>

#include "core/model/layer_list.h"
#include "core/model/make_layers.h"

namespace tandem::parameter_traits_test {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_EQ(TraitsOf({{"w", other}}, "w"), other);
  EXPECT_EQ(TraitsOf({{"w", other}}, "b"), usual);
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

}  // namespace
}  // namespace tandem::parameter_traits_test
