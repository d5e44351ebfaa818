// Adapters of every kind of linear layer, beside the chain rule by hand.

#include "models/lora/lora.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/context/compute_context.h"
#include "core/meta/shapes.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/chunked_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/basic_modules.h"
#include "models/mlp.h"
#include "models/modules/layers_of.h"
#include "models/resnet.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/vit.h"
#include "tests/models/state_shapes.h"

namespace tandem::lora_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace nn = torch::nn;

constexpr uint64_t kSeed = 3;

at::Tensor Drawn(const std::string& name, at::IntArrayRef sizes) {
  return at::randn(sizes, GeneratorFor(kSeed, name));
}

LayerSpecs SmallGpt(bool tied = false) {
  GptOptions options = {/*layers=*/2, /*width=*/12, /*heads=*/3,
                        /*context=*/7, /*vocabulary=*/11};
  options.ties_lm_head = tied;
  return *Gpt(options);
}

LayerSpecs SmallLlama() {
  LlamaOptions options;
  options.layers = 2;
  options.width = 12;
  options.ffn_width = 10;
  options.heads = 2;
  options.kv_heads = 1;
  options.head_dim = 6;
  options.context = 7;
  options.vocabulary = 11;
  return *Llama(options);
}

LayerSpecs SmallVit() {
  VitOptions options;
  options.image_size = 8;
  options.patch_size = 4;
  options.layers = 1;
  options.heads = 2;
  options.width = 6;
  options.ffn_width = 10;
  options.classes = 5;
  return *Vit(options);
}

at::Tensor SomeTokens() {
  return (at::arange(14, at::kLong) * 5 % 11).view({2, 7});
}

struct Problem {
  std::string name;
  LayerSpecs specs;
  at::Tensor input;
  std::string on;
  size_t adapters;  // that it says
};

LoraOptions Options(const std::string& on, int64_t rank = 3, double alpha = 5) {
  LoraOptions options;
  options.rank = rank;
  options.alpha = alpha;
  options.on = on;
  return options;
}

std::vector<Problem> Problems() {
  return {
      {"GptByDefault", SmallGpt(), SomeTokens(), LoraOptions().on, 2},
      {"GptTiedByDefault", SmallGpt(true), SomeTokens(), LoraOptions().on, 2},
      {"GptEverywhere", SmallGpt(), SomeTokens(), ".", 2 * 4 + 1},
      {"LlamaByDefault", SmallLlama(), SomeTokens(), LoraOptions().on, 4},
      {"LlamaEverywhere", SmallLlama(), SomeTokens(), ".", 2 * 7 + 1},
      {"VitEverywhere", SmallVit(), Drawn("images", {3, 3, 8, 8}), ".", 5},
      {"Mlp", Mlp({6, 3, 7, 5}), Drawn("samples", {4, 6}), ".", 3},
      {"Resnet", Resnet18({3, 5, 4}), Drawn("images", {2, 3, 32, 32}), "^fc",
       1}};
}

class LoraTest : public testing::TestWithParam<Problem> {
 protected:
  // Adapters that do something.
  LayerList Adapted() const {
    const LayerList layers =
        MakeLayers(*WithLora(GetParam().specs, Options(GetParam().on)), kSeed);
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : NamedParameters(layers)) {
      if (!IsLoraParameter(name)) continue;
      tensor.copy_(Drawn(name, tensor.sizes()) * 0.3);
    }
    return layers;
  }
};

// Random weights of a sum, so that each output has a gradient of its own.
at::Tensor Loss(const at::Tensor& output) {
  return (output * Drawn("loss", output.sizes())).sum();
}

constexpr double kClose = 2e-4;

void ExpectNear(const at::Tensor& found, const at::Tensor& expected,
                const std::string& name) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << name;
  const double scale = expected.abs().max().item<double>();
  EXPECT_GT(scale, 0) << name;
  EXPECT_LE((found - expected).abs().max().item<double>(), kClose * scale)
      << name;
}

// W + s B A in place of W: its outputs, and from W's gradient those of A and B.
TEST_P(LoraTest, IsTheMergedModelAndItsChainRule) {
  const LayerList adapted = Adapted();
  const LayerList plain = MakeLayers(GetParam().specs, kSeed);
  const auto weights = ParametersByName(plain);
  const auto own = ParametersByName(adapted);
  const auto targets = *LoraTargets(GetParam().specs, Options(GetParam().on));
  ASSERT_EQ(targets.size(), GetParam().adapters);
  const double scaling = 5.0 / 3;
  for (const LoraTarget& each : targets) {
    const at::NoGradGuard no_grad;
    const at::Tensor product =
        at::matmul(own.at(each.module + ".lora_B.weight"),
                   own.at(each.module + ".lora_A.weight"));
    weights.at(each.weight)
        .add_(each.layout == WeightLayout::kOutIn ? product : product.t(),
              scaling);
  }
  SetTraining(adapted, false);
  SetTraining(plain, false);
  const at::Tensor expected = Forward(plain, GetParam().input);
  const at::Tensor found = Forward(adapted, GetParam().input);
  ExpectNear(found, expected, "outputs");
  Loss(expected).backward();
  Loss(found).backward();
  for (const LoraTarget& each : targets) {
    at::Tensor gradient = weights.at(each.weight).grad();
    if (each.layout == WeightLayout::kInOut) gradient = gradient.t();
    const at::Tensor a = own.at(each.module + ".lora_A.weight");
    const at::Tensor b = own.at(each.module + ".lora_B.weight");
    ExpectNear(a.grad(), at::matmul(b.t(), gradient) * scaling, each.module);
    ExpectNear(b.grad(), at::matmul(gradient, a.t()) * scaling, each.module);
  }
}

TEST_P(LoraTest, BeginsWithTheModelAndTrainsAdaptersAlone) {
  const LayerSpecs specs = *WithLora(GetParam().specs, Options(GetParam().on));
  const LayerList adapted = MakeLayers(specs, kSeed);
  const LayerList plain = MakeLayers(GetParam().specs, kSeed);
  EXPECT_TRUE(Forward(adapted, GetParam().input)
                  .equal(Forward(plain, GetParam().input)));
  const auto base = ParametersByName(plain);
  size_t adapters = 0;
  for (const auto& [name, tensor] : NamedParameters(adapted)) {
    EXPECT_EQ(tensor.requires_grad(), IsLoraParameter(name)) << name;
    if (IsLoraParameter(name)) {
      ++adapters;
    } else {
      EXPECT_TRUE(tensor.equal(base.at(name))) << name;
    }
  }
  EXPECT_EQ(adapters, 2 * GetParam().adapters);
  Loss(Forward(adapted, GetParam().input)).backward();
  for (const auto& [name, tensor] : NamedParameters(adapted)) {
    EXPECT_EQ(tensor.grad().defined(), IsLoraParameter(name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LoraTest, testing::ValuesIn(Problems()),
                         [](const auto& info) { return info.param.name; });

// kaiming_uniform(a = sqrt(5)), a function of the seed and the name: a part of
// the model has the same, other seeds others.
TEST(LoraInitialValuesTest, AreAFunctionOfSeedAndName) {
  LayerSpecs specs = *WithLora(Mlp({400, 2, 300, 5}), Options(".", 8));
  const auto all = ParametersByName(MakeLayers(specs, 1));
  const at::Tensor a = all.at("fc1.lora_A.weight");
  EXPECT_EQ(a.sizes(), (std::vector<int64_t>{8, 400}));
  EXPECT_LE(a.abs().max().item<double>(), 1 / std::sqrt(400.0));
  EXPECT_NEAR(a.std().item<double>(), 1 / std::sqrt(3 * 400.0), 1e-3);
  EXPECT_EQ(all.at("fc1.lora_B.weight").abs().max().item<double>(), 0);
  EXPECT_FALSE(
      a.equal(ParametersByName(MakeLayers(specs, 2)).at("fc1.lora_A.weight")));
  const LayerSpecs last(specs.end() - 1, specs.end());
  for (const auto& [name, tensor] : NamedParameters(MakeLayers(last, 1))) {
    EXPECT_TRUE(tensor.equal(all.at(name))) << name;
  }
}

// Rows of a batch that is cut drop what those of the whole one do.
TEST(LoraDropoutTest, DropsBySample) {
  LoraOptions options = Options(".");
  options.dropout = 0.5;
  const LayerList layers =
      MakeLayers(*WithLora(Mlp({6, 1, 7, 5}), options), kSeed);
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : NamedParameters(layers)) {
      if (IsLoraParameter(name)) tensor.copy_(Drawn(name, tensor.sizes()));
    }
  }
  const at::Tensor x = Drawn("x", {5, 6});
  const auto outputs = [&](int64_t first, int64_t count) {
    const SampleScope samples({/*seed=*/7, /*step=*/2, first});
    return Forward(layers, x.narrow(0, first, count)).detach();
  };
  const at::Tensor whole = outputs(0, 5);
  EXPECT_TRUE(whole.allclose(at::cat({outputs(0, 2), outputs(2, 3)})));
  SetTraining(layers, false);
  EXPECT_FALSE(whole.allclose(outputs(0, 5)));
  EXPECT_TRUE(outputs(0, 5).equal(Forward(layers, x).detach()));
}

// A product with a frozen weight keeps nothing of its input.
TEST(LoraMemoryTest, AFrozenLayerKeepsNoInput) {
  const auto lives = [](bool frozen) {
    Linear linear(4, 3);
    linear.weight.requires_grad_(!frozen);
    linear.bias.requires_grad_(!frozen);
    at::Tensor x = at::ones({2, 4}).requires_grad_();
    at::Tensor input = x * 2;
    const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>
        weak(input.getIntrusivePtr());
    const at::Tensor y = linear.forward(input);
    input.reset();
    const bool is_there = !weak.expired();
    y.sum().backward();
    EXPECT_TRUE(
        x.grad().allclose((2 * linear.weight.sum(0)).expand({2, 4}).detach()));
    return is_there;
  };
  EXPECT_TRUE(lives(false));
  EXPECT_FALSE(lives(true));
}

TEST(LoraRefusalTest, APatternThatMatchesNothingNamesEightOfTheWeights) {
  const absl::Status status = WithLora(SmallGpt(), Options("gamma")).status();
  EXPECT_THAT(
      status,
      InvalidArgument(
          "lora_on=gamma matches no linear weight of the model, which has "
          "transformer.h.0.attn.c_attn.weight, "
          "transformer.h.0.attn.c_proj.weight, "
          "transformer.h.0.mlp.c_fc.weight, transformer.h.0.mlp.c_proj.weight, "
          "transformer.h.1.attn.c_attn.weight, "
          "transformer.h.1.attn.c_proj.weight, "
          "transformer.h.1.mlp.c_fc.weight, transformer.h.1.mlp.c_proj.weight "
          "and 1 more"));
  EXPECT_THAT(WithLora({ReluLayer("relu")}, Options(".")).status(),
              InvalidArgument("which has none"));
}

TEST(LoraRefusalTest, WhatCannotBeAdaptedIsNamed) {
  EXPECT_THAT(WithLora(SmallGpt(/*tied=*/true), Options(".")).status(),
              InvalidArgument("lora_on=. matches lm_head.weight, which is tied "
                              "to transformer.wte.weight"));
  EXPECT_THAT(WithLora(*WithoutLogits(SmallGpt()), Options("head")).status(),
              InvalidArgument("lm_head.weight, which the loss takes"));
  // Elsewhere it may be.
  EXPECT_TRUE(WithLora(*WithoutLogits(SmallGpt()), Options("c_fc")).ok());
}

TEST(LoraRefusalTest, ValuesThatAreNoneAreNamed) {
  EXPECT_THAT(WithLora(SmallGpt(), Options("c_attn", 0)).status(),
              InvalidArgument("lora_rank=0"));
  EXPECT_THAT(WithLora(SmallGpt(), Options("c_attn", 1, NAN)).status(),
              InvalidArgument("lora_alpha=nan"));
  EXPECT_THAT(WithLora(SmallGpt(), Options("c_attn(")).status(),
              InvalidArgument("lora_on=c_attn(: not a regular expression"));
  LoraOptions dropping = Options("c_attn");
  dropping.dropout = 1.5;
  EXPECT_THAT(WithLora(SmallGpt(), dropping).status(),
              InvalidArgument("lora_dropout=1.5"));
}

// Layers that there are already are changed themselves, once, however often
// they are made, and though they were made without storage before.
TEST(LoraModuleTest, LayersOfASequentialAreAdapted) {
  nn::Sequential net(nn::Linear(6, 7), nn::ReLU(), nn::Linear(7, 5));
  const at::Tensor x = Drawn("x", {4, 6});
  const at::Tensor before = net->forward(x).detach();
  const LayerSpecs specs =
      *WithLora(LayersOf(net)->specs, Options("^2\\.weight", 2));
  ASSERT_TRUE(ModelShapes(specs).ok());
  MakeLayers(specs, 1);
  const LayerList layers = MakeLayers(specs, 1);
  EXPECT_TRUE(Forward(layers, x).equal(before));
  const auto own = ParametersByName(layers);
  EXPECT_EQ(own.size(), 6u);
  const at::Tensor a = own.at("2.lora_A.weight"), b = own.at("2.lora_B.weight");
  {
    const at::NoGradGuard no_grad;
    b.fill_(0.5);
  }
  const at::Tensor hidden =
      at::matmul(x, own.at("0.weight").t()) + own.at("0.bias");
  ExpectNear(Forward(layers, x),
             before + at::matmul(at::matmul(hidden.relu(), a.t()), b.t()) * 2.5,
             "outputs");
  EXPECT_FALSE(own.at("0.weight").requires_grad());
}

struct Inner : nn::Module {
  explicit Inner(bool adaptable) {
    if (adaptable) {
      fc = register_module("fc", std::make_shared<Linear>(6, 5));
    } else {
      plain = register_module("fc", nn::Linear(6, 5));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    return fc == nullptr ? plain(x) : fc->forward(x);
  }
  std::shared_ptr<Linear> fc;
  nn::Linear plain{nullptr};
};

struct Outer : nn::Module {
  explicit Outer(bool adaptable)
      : inner(register_module("inner", std::make_shared<Inner>(adaptable))) {}
  std::shared_ptr<Inner> inner;
};

TEST(LoraModuleTest, AModuleOfOnesOwnIsAdapted) {
  const auto outer = std::make_shared<Outer>(true);
  const at::Tensor x = Drawn("x", {4, 6});
  const at::Tensor before = outer->inner->forward(x);
  ExpectOk(AddLora(outer, kSeed, Options("fc", 2)));
  EXPECT_TRUE(outer->inner->forward(x).equal(before));
  const auto parameters = outer->named_parameters();
  EXPECT_THAT(parameters.keys(),
              ElementsAre("inner.fc.weight", "inner.fc.bias",
                          "inner.fc.lora_A.weight", "inner.fc.lora_B.weight"));
  Loss(outer->inner->forward(x)).backward();
  EXPECT_FALSE(parameters["inner.fc.weight"].grad().defined());
  // A's is zero as long as B is.
  EXPECT_GT(
      parameters["inner.fc.lora_B.weight"].grad().abs().max().item<double>(),
      0);
  EXPECT_THAT(AddLora(outer, kSeed, Options("gamma")),
              InvalidArgument("which has inner.fc.weight"));
  EXPECT_THAT(AddLora(outer, kSeed, Options("fc", 3)),
              Says("inner.fc.lora_A is there already"));
}

TEST(LoraModuleTest, APlainLinearInsideOfAModuleIsRefusedByName) {
  EXPECT_THAT(AddLora(std::make_shared<Outer>(false), kSeed, Options("fc")),
              InvalidArgument("lora_on=fc matches inner.fc.weight, which is of "
                              "a torch::nn::Linear"));
}

}  // namespace
}  // namespace tandem::lora_test
