#include "models/channels_last.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/fingerprint.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "models/registry.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem::channels_last_test {
namespace {

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;
constexpr int64_t kSeed = 3;

class ChannelsLastTest : public testing::TestWithParam<std::string> {
 protected:
  static LayerSpecs Specs() {
    ModelOptions model;
    model.name = GetParam();
    model.input_shape = {3, 20, 20};
    model.classes = 7;
    return MakeModel(model).value();
  }

  static at::Tensor Images() {
    return at::rand({5, 3, 20, 20}, GeneratorFor(kSeed, "images"));
  }
};

TEST_P(ChannelsLastTest, ValuesStayAndWeightsOfConvolutionsLieChannelsLast) {
  const LayerList usual = MakeLayers(Specs(), kSeed);
  const LayerList converted = MakeLayers(InChannelsLast(Specs()), kSeed);
  EXPECT_EQ(WeightsSha256(NamedParameters(converted)),
            WeightsSha256(NamedParameters(usual)));
  int weights = 0;
  for (const auto& [name, parameter] : NamedParameters(converted)) {
    if (parameter.dim() != 4) {
      EXPECT_TRUE(parameter.is_contiguous()) << name;
      continue;
    }
    ++weights;
    EXPECT_TRUE(parameter.is_contiguous(kChannelsLast)) << name;
    EXPECT_TRUE(parameter.requires_grad() && parameter.is_leaf()) << name;
  }
  EXPECT_GT(weights, 0);
}

TEST_P(ChannelsLastTest, OutputsAndGradientsAreTheSameWithinRounding) {
  const LayerList usual = MakeLayers(Specs(), kSeed);
  const LayerList converted = MakeLayers(InChannelsLast(Specs()), kSeed);
  // Parameters as training has them: views of flat buffers.
  const FlatBuffers buffers = MakeFlatBuffers(NamedParameters(converted));
  const at::Tensor expected = Forward(usual, Images());
  const at::Tensor got = Forward(converted, Images());
  EXPECT_TRUE(at::allclose(got, expected, /*rtol=*/1e-4, /*atol=*/1e-4));
  expected.square().mean().backward();
  got.square().mean().backward();
  const NamedTensors usual_parameters = NamedParameters(usual);
  const NamedTensors ours = NamedParameters(converted);
  ASSERT_EQ(ours.size(), usual_parameters.size());
  for (size_t i = 0; i < usual_parameters.size(); ++i) {
    const auto& [name, parameter] = ours[i];
    const at::Tensor grad = usual_parameters[i].second.grad();
    EXPECT_TRUE(at::allclose(parameter.grad(), grad, /*rtol=*/1e-3,
                             /*atol=*/1e-3 * grad.abs().max().item<double>()))
        << name;
    if (parameter.dim() != 4) continue;
    EXPECT_TRUE(parameter.is_contiguous(kChannelsLast)) << name;
  }
  EXPECT_TRUE(buffers[0]->CheckViews().ok());
}

INSTANTIATE_TEST_SUITE_P(Models, ChannelsLastTest,
                         testing::Values("cnn", "resnet18", "unet_tiny"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::channels_last_test
