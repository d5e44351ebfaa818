#include "models/registry.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>

#include <set>
#include <string>
#include <vector>

#include "core/context/compute_context.h"
#include "core/model/layer_list.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::registry_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kBatch = 2;
constexpr uint64_t kSeed = 11;

ModelOptions OptionsFor(const std::string& name) {
  if (TakesTokens(name)) return {name, {128}, 256, true};
  if (name == "toy" || name == "toy_mp") return {name, {10}, 5};
  return {name, {3, 16, 33}, 7};
}

at::Tensor InputFor(const ModelOptions& options) {
  std::vector<int64_t> shape = options.input_shape;
  shape.insert(shape.begin(), kBatch);
  int64_t numel = 1;
  for (int64_t size : shape) numel *= size;
  if (TakesTokens(options.name)) {
    return (at::arange(numel, at::kLong) * 5 % 256).view(shape);
  }
  return at::linspace(-1, 1, numel).sin().view(shape);
}

LayerList Make(const ModelOptions& options) {
  return MakeLayers(MakeModel(options).value(), kSeed);
}

class EveryModelTest : public testing::TestWithParam<std::string> {
 protected:
  const ModelOptions options_ = OptionsFor(GetParam());
  const at::Tensor input_ = InputFor(options_);
};

TEST_P(EveryModelTest, GivesOneLogitForEachClass) {
  const at::Tensor output = Forward(Make(options_), input_);
  std::vector<int64_t> expected = {kBatch, options_.classes};
  if (TakesTokens(GetParam())) expected = {kBatch, 128, 256};
  EXPECT_EQ(output.sizes().vec(), expected);
  EXPECT_TRUE(output.isfinite().all().item<bool>());
}

TEST_P(EveryModelTest, NamesEveryLayerAndTensorOnce) {
  const LayerSpecs specs = MakeModel(options_).value();
  const LayerList layers = MakeLayers(specs, kSeed);
  std::set<std::string> names;
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(layers[i].name, specs[i].name);
    EXPECT_FALSE(specs[i].type.empty());
    EXPECT_TRUE(names.insert(specs[i].name).second) << specs[i].name;
  }
  for (const auto& item : NamedParameters(layers)) {
    EXPECT_TRUE(names.insert(item.first).second) << item.first;
  }
}

TEST_P(EveryModelTest, GradientsReachEveryParameter) {
  const LayerList layers = Make(options_);
  Forward(layers, input_).square().sum().backward();
  for (const auto& item : NamedParameters(layers)) {
    ASSERT_TRUE(item.second.grad().defined()) << item.first;
    EXPECT_GT(item.second.grad().abs().sum().item<double>(), 0) << item.first;
  }
}

// Each layer made alone, the last first, and the parts joined by a detached
// leaf as in a pipeline, past which skips go as they are: the same output bits.
TEST_P(EveryModelTest, CutAnywhereItGivesTheSameBits) {
  const SampleScope scope({kSeed, /*step=*/0, /*first=*/0});
  const LayerSpecs specs = MakeModel(options_).value();
  const at::Tensor whole = Forward(MakeLayers(specs, kSeed), input_).detach();
  LayerList layers(specs.size());
  for (size_t i = specs.size(); i-- > 0;) {
    layers[i] = MakeLayers({specs[i]}, kSeed).front();
  }
  for (size_t cut = 0; cut <= layers.size(); ++cut) {
    at::Tensor passed = input_;
    Skips skips;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i == cut && passed.is_floating_point()) {
        passed = passed.detach().requires_grad_();
      }
      passed = RunLayer(layers[i], passed, skips);
    }
    EXPECT_TRUE(passed.detach().equal(whole)) << cut;
  }
}

TEST_P(EveryModelTest, AnotherSeedGivesOtherValues) {
  const NamedTensors first = NamedParameters(Make(options_));
  const NamedTensors other =
      NamedParameters(MakeLayers(MakeModel(options_).value(), kSeed + 1));
  bool differs = false;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(other[i].first, first[i].first);
    differs = differs || !other[i].second.equal(first[i].second);
  }
  EXPECT_TRUE(differs);
}

// The tiny ones of the transformers: the others are the same in large, and
// transformers_parity_test has a small ViT.
std::vector<std::string> SmallModels() {
  std::vector<std::string> names;
  for (const std::string& name : KnownModels()) {
    if (name == "vit_b_16") continue;
    if (!TakesTokens(name) || name.find("_tiny") != std::string::npos) {
      names.push_back(name);
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EveryModelTest, testing::ValuesIn(SmallModels()),
                         [](const auto& info) { return info.param; });

TEST(RegistryTest, KnowsTheModels) {
  EXPECT_THAT(
      KnownModels(),
      testing::ElementsAre(
          "cnn", "gpt2", "gpt2-large", "gpt2-medium", "gpt2-xl", "gpt_baby",
          "gpt_tiny", "gpt_tiny_tied", "llama-2-7b", "llama-3-70b",
          "llama-3-8b", "llama-3.2-1b", "llama-3.2-3b", "llama_baby",
          "llama_tiny", "llama_tiny_tied", "mlp_deep", "mlp_dropout",
          "mlp_small", "mlp_wide", "resnet18", "resnet34", "resnet50",
          "tinyllama", "toy", "toy_mp", "unet_tiny", "vit_b_16"));
}

std::string Error(const ModelOptions& options) {
  const absl::StatusOr<LayerSpecs> model = MakeModel(options);
  EXPECT_TRUE(absl::IsInvalidArgument(model.status()));
  return std::string(model.status().message());
}

TEST(RegistryTest, AnUnknownNameListsTheKnownOnes) {
  EXPECT_EQ(
      Error({"resnet19", {1, 28, 28}, 10}),
      "unknown model 'resnet19': choose one of resnet18, resnet34, resnet50, "
      "cnn, gpt2, toy, vit_b_16, gpt2-xl and 20 more (train --help=model lists "
      "all); did you mean resnet18?");
  EXPECT_THAT(Error({"resnet-18", {1, 28, 28}, 10}),
              HasSubstr("did you mean resnet18?"));
  EXPECT_THAT(Error({"transformer", {1, 28, 28}, 10}),
              testing::EndsWith(" and 20 more (train --help=model lists all)"));
}

TEST(RegistryTest, AnInputThatDoesNotFitSaysWhatDoes) {
  for (const char* name : {"cnn", "resnet18", "resnet34", "resnet50"}) {
    const std::string error = Error({name, {128}, 10});
    EXPECT_THAT(error, HasSubstr(std::string("model ") + name));
    EXPECT_THAT(error, HasSubstr("takes images [channels, height, width]"));
    EXPECT_THAT(error, HasSubstr("the data's inputs are [128]"));
  }
  EXPECT_THAT(Error({"cnn", {1, 3, 28}, 10}), HasSubstr("at least 4 x 4"));
  EXPECT_THAT(Error({"unet_tiny", {1, 28, 3}, 10}),
              HasSubstr("at least 4 x 4"));
  EXPECT_THAT(Error({"gpt_tiny", {1, 28, 28}, 10}), HasSubstr("token numbers"));
  EXPECT_THAT(Error({"gpt_tiny_tied", {128}, 257, true}),
              HasSubstr("up to 256"));
  EXPECT_THAT(Error({"mlp_small", {128}, 256, true}),
              HasSubstr("but the data's inputs are token numbers"));
  EXPECT_THAT(Error({"gpt_tiny", {129}, 256, true}), HasSubstr("up to 128"));
  EXPECT_THAT(Error({"gpt2", {1025}, 256, true}), HasSubstr("up to 1024"));
  EXPECT_THAT(Error({"gpt_tiny", {128}, 257, true}), HasSubstr("up to 256"));
  EXPECT_THAT(Error({"toy", {11}, 5}), HasSubstr("takes inputs [10]"));
  EXPECT_THAT(Error({"toy_mp", {10}, 6}), HasSubstr("with 5 classes"));
}

// Nothing is made of the largest.
TEST(RegistryTest, SizesByNameAreListsOfTheirLayers) {
  EXPECT_EQ(MakeModel({"gpt2-xl", {1024}, 50257, true})->size(), 48 + 4);
  EXPECT_EQ(MakeModel({"llama-3-70b", {8192}, 128256, true})->size(), 80 + 3);
  EXPECT_EQ(MakeModel({"vit_b_16", {3, 32, 32}, 10})->size(), 12 + 4);
  EXPECT_THAT(Error({"vit_b_16", {3, 32, 40}, 10}), HasSubstr("square images"));
  EXPECT_THAT(Error({"tinyllama", {2049}, 256, true}), HasSubstr("up to 2048"));
}

TEST(RegistryTest, TransformersTakeOtherSizesThanTheirNamesSay) {
  const LayerList llama =
      Make({"llama_tiny", {8}, 256, true, {1, 24, 6, 3, 9}});
  EXPECT_EQ(llama.size(), 4);
  const NamedTensors parameters = NamedParameters(llama);
  const auto shape = [&](const std::string& name) {
    for (const auto& item : parameters) {
      if (item.first == name) return item.second.sizes().vec();
    }
    return std::vector<int64_t>();
  };
  EXPECT_EQ(shape("model.layers.0.self_attn.k_proj.weight"),
            (std::vector<int64_t>{12, 24}));
  EXPECT_EQ(shape("model.layers.0.mlp.up_proj.weight"),
            (std::vector<int64_t>{9, 24}));
  EXPECT_EQ(MakeModel({"gpt2", {8}, 256, true, {3}})->size(), 3 + 4);
}

TEST(RegistryTest, SizesThatAModelDoesNotHaveAreRefused) {
  EXPECT_THAT(Error({"gpt2", {8}, 256, true, {0, 0, 0, 2}}),
              HasSubstr("model gpt2 has no kv_heads"));
  EXPECT_THAT(Error({"cnn", {1, 28, 28}, 10, false, {3}}),
              HasSubstr("model cnn is of one size, but layers 3 was given"));
  EXPECT_THAT(Error({"llama_tiny", {8}, 256, true, {0, 0, 3}}),
              HasSubstr("3 heads and 2 kv_heads"));
  EXPECT_THAT(Error({"llama_tiny", {8}, 256, true, {-1}}),
              HasSubstr("layers -1: expected 1 or more"));
}

TEST(RegistryTest, SizesMustBePositive) {
  EXPECT_THAT(Error({"mlp_small", {}, 10}), HasSubstr("at least 1"));
  EXPECT_THAT(Error({"mlp_small", {3, 0}, 10}), HasSubstr("at least 1"));
  EXPECT_THAT(Error({"mlp_small", {3}, 0}), HasSubstr("at least 1"));
}

TEST(RegistryTest, SmallestInputsWork) {
  for (const char* name : {"cnn", "mlp_deep", "mlp_dropout", "resnet18",
                           "resnet50", "unet_tiny"}) {
    const ModelOptions options = {name, {1, 4, 4}, 1};
    const LayerList layers = Make(options);
    SetTraining(layers, false);
    EXPECT_EQ(Forward(layers, InputFor(options)).sizes().vec(),
              (std::vector<int64_t>{kBatch, 1}))
        << name;
  }
}

TEST(RegistryTest, AnyNumberOfTokensUpToTheContextWorks) {
  const LayerList layers = Make({"gpt_tiny", {1}, 256, true});
  const at::Tensor input = at::arange(3, at::kLong).view({3, 1});
  EXPECT_EQ(Forward(layers, input).sizes().vec(),
            (std::vector<int64_t>{3, 1, 256}));
}

}  // namespace
}  // namespace tandem::registry_test
