#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <limits>
#include <stdexcept>
#include <string>

#include "absl/status/status.h"
#include "core/base/torch_status.h"
#include "core/finite/checked_layers.h"
#include "core/finite/finite_check.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"

namespace tandem::finite_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(FiniteCheckTest, FindsEachKindAnywhere) {
  EXPECT_TRUE(IsFinite(at::zeros({3, 7})));
  EXPECT_TRUE(IsFinite(at::empty({0})));
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const int64_t at : {0, 10, 20}) {
      at::Tensor values = at::zeros({21});
      values[at] = bad;
      EXPECT_FALSE(IsFinite(values));
      EXPECT_FALSE(IsFinite(values.to(at::kBFloat16)));
    }
  }
  EXPECT_TRUE(
      IsFinite(at::zeros({1}).fill_(std::numeric_limits<float>::max())));
}

TEST(FiniteCheckTest, CountsAndSaysWhereTheFirstIs) {
  at::Tensor values = at::zeros({2, 3, 5});
  values[1][0][2] = -kInfinity;
  values[1][2][4] = kNan;
  values[0][2][1] = kNan;
  EXPECT_EQ(CountNonfinite(values),
            "2 NaN and 1 infinite of 30 values, the first at [0, 2, 1] (nan)");
}

TEST(FiniteCheckTest, StridesDoNotMatter) {
  at::Tensor values = at::zeros({3, 2}).t();
  values[1][2] = kInfinity;
  EXPECT_EQ(CountNonfinite(values),
            "0 NaN and 1 infinite of 6 values, the first at [1, 2] (inf)");
}

TEST(FiniteCheckTest, ThrowsWhatItIsTold) {
  EXPECT_THROW(ThrowNonfinite("layer a"), std::out_of_range);
}

LayerSpec LinearSpec(const std::string& name, int64_t in, int64_t out) {
  const auto make = [=](uint64_t seed) {
    const auto module = std::make_shared<torch::nn::LinearImpl>(in, out);
    const at::NoGradGuard no_grad;
    module->weight.fill_(0.25 * static_cast<double>(seed));
    module->bias.zero_();
    return Layer{name, module,
                 [module](const at::Tensor& x) { return module->forward(x); }};
  };
  return {name, "Linear", make};
}

// A layer whose gradient is NaN where its input is 0, and its output is not.
LayerSpec RootSpec() {
  const auto make = [](uint64_t) {
    return Layer{"root", nullptr, [](const at::Tensor& x) {
                   return x.abs().sqrt() * at::zeros_like(x);
                 }};
  };
  return {"root", "Root", make};
}

LayerSpecs ThreeLinears() {
  return {LinearSpec("first", 3, 4), LinearSpec("second", 4, 5),
          LinearSpec("third", 5, 2)};
}

at::Tensor RunAll(const LayerList& layers, at::Tensor x) {
  for (const Layer& layer : layers) x = layer.forward(x);
  return x;
}

TEST(CheckedLayersTest, FiniteValuesPassWithTheSameBits) {
  const LayerList plain = MakeLayers(ThreeLinears(), 2);
  const LayerList checked = MakeLayers(CheckedLayers(ThreeLinears()), 2);
  const at::Tensor x = at::ones({7, 3});
  const at::Tensor a = RunAll(plain, x);
  const at::Tensor b = RunAll(checked, x);
  EXPECT_TRUE(at::equal(a, b));
  a.sum().backward();
  b.sum().backward();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(plain[i].module->parameters()[0].grad(),
                          checked[i].module->parameters()[0].grad()));
  }
}

TEST(CheckedLayersTest, TheFirstLayerIsNamedWithTheParameterAtFault) {
  const LayerList layers = MakeLayers(CheckedLayers(ThreeLinears()), 1);
  layers[1].module->parameters()[0].data()[2][3] = kNan;
  const absl::Status status = CatchTorch([&] {
    RunAll(layers, at::ones({1, 3}));
  });
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_EQ(status.message(),
            "layer second: its output has 1 NaN and 0 infinite of 5 values, "
            "the first at [0, 2] (nan); its input is finite, its parameter "
            "second.weight has 1 NaN and 0 infinite of 20 values, the first at "
            "[2, 3] (nan)");
}

TEST(CheckedLayersTest, WhatCameInIsToBlame) {
  const LayerList layers = MakeLayers(CheckedLayers(ThreeLinears()), 1);
  EXPECT_THAT(CatchTorch([&] {
                RunAll(layers, at::full({2, 3}, kNan));
              }),
              Says("layer first: its output has 8 NaN",
                   "its input is not finite either, its parameters "
                   "are finite"));
}

TEST(CheckedLayersTest, BackwardNamesTheLayerWhoseGradientItIs) {
  const LayerSpecs specs = {LinearSpec("first", 3, 4), RootSpec()};
  const at::Tensor zeros = at::zeros({2, 3});
  const auto backward = [&](const LayerSpecs& layers) {
    return CatchTorch(
        [&] { RunAll(MakeLayers(layers, 1), zeros).sum().backward(); });
  };
  EXPECT_TRUE(backward(specs).ok());
  EXPECT_THAT(backward(CheckedLayers(specs)),
              Says("layer first: the gradient of its output, which the "
                   "layers behind it computed, has 8 NaN"));
  EXPECT_TRUE(backward(CheckedLayers(specs, {/*gradients=*/false})).ok());
}

TEST(CheckedLayersTest, WholeNumbersAreNotLookedAt) {
  const auto make = [](uint64_t) {
    return Layer{"tokens", nullptr, [](const at::Tensor& x) { return x + 1; }};
  };
  const LayerList layers =
      MakeLayers(CheckedLayers({{"tokens", "Tokens", make}}), 1);
  EXPECT_EQ(RunAll(layers, at::zeros({2}, at::kLong)).sum().item<int64_t>(), 2);
}

TEST(CheckedLayersTest, WhatIsStashedForLaterIsLookedAt) {
  LayerSpec spec;
  spec.name = "down";
  spec.links.stash = {"skip"};
  spec.make = [](uint64_t) {
    Layer layer;
    layer.name = "down";
    layer.links.stash = {"skip"};
    layer.forward_with_skips = [](const at::Tensor& x, Skips& skips) {
      skips["skip"] = x / 0;
      return x;
    };
    return layer;
  };
  const LayerList layers = MakeLayers(CheckedLayers({spec}), 1);
  Skips skips;
  EXPECT_THAT(
      CatchTorch([&] { layers[0].forward_with_skips(at::ones({3}), skips); }),
      Says("layer down: its skip has 0 NaN and 3 infinite"));
}

}  // namespace
}  // namespace tandem::finite_test
