#include "core/model/make_layers.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "models/layers/basic_layers.h"
#include "models/layers/initialize.h"
#include "models/layers/module_layer.h"
#include "models/layers/token_embedding.h"

namespace tandem::make_layers_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

}  // namespace
}  // namespace tandem::make_layers_test
