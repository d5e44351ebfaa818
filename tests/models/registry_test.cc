#include "models/registry.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/model/layer_list.h"
#include "core/random/sample_scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr int64_t kBatch = 2;
constexpr uint64_t kSeed = 11;

bool IsGpt(const std::string& name) { return name.substr(0, 3) == "gpt"; }

ModelOptions OptionsFor(const std::string& name) {
  if (IsGpt(name)) return {name, {128}, 256, true};
  if (name == "toy" || name == "toy_mp") return {name, {10}, 5};
  return {name, {3, 16, 33}, 7};
}

at::Tensor InputFor(const ModelOptions& options) {
  std::vector<int64_t> shape = options.input_shape;
  shape.insert(shape.begin(), kBatch);
  int64_t numel = 1;
  for (int64_t size : shape) numel *= size;
  if (IsGpt(options.name)) {
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
  if (IsGpt(GetParam())) expected = {kBatch, 128, 256};
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

// But gpt2, which is gpt_tiny_tied in large.
std::vector<std::string> SmallModels() {
  std::vector<std::string> names = KnownModels();
  names.erase(std::find(names.begin(), names.end(), "gpt2"));
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EveryModelTest, testing::ValuesIn(SmallModels()),
                         [](const auto& info) { return info.param; });

TEST(RegistryTest, KnowsTheModels) {
  EXPECT_THAT(KnownModels(),
              testing::ElementsAre("cnn", "gpt2", "gpt_tiny", "gpt_tiny_tied",
                                   "mlp_deep", "mlp_dropout", "mlp_small",
                                   "mlp_wide", "resnet18", "resnet34",
                                   "resnet50", "toy", "toy_mp", "unet_tiny"));
}

std::string Error(const ModelOptions& options) {
  const absl::StatusOr<LayerSpecs> model = MakeModel(options);
  EXPECT_TRUE(absl::IsInvalidArgument(model.status()));
  return std::string(model.status().message());
}

TEST(RegistryTest, AnUnknownNameListsTheKnownOnes) {
  EXPECT_EQ(Error({"resnet19", {1, 28, 28}, 10}),
            "unknown model 'resnet19': choose one of cnn, gpt2, gpt_tiny, "
            "gpt_tiny_tied, mlp_deep, mlp_dropout, mlp_small, mlp_wide, "
            "resnet18, resnet34, resnet50, toy, toy_mp, unet_tiny");
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
}  // namespace tandem
