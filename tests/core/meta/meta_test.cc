#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformer.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "core/meta/flops.h"
#include "core/meta/shapes.h"
#include "core/model/layer_list.h"
#include "core/program/process.h"
#include "gtest/gtest.h"
#include "models/registry.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/sizes.h"

namespace tandem::meta_test {
namespace {

double OfImages(const std::string& name, int64_t size) {
  ModelOptions options;
  options.name = name;
  options.input_shape = {3, size, size};
  options.classes = 1000;
  return *ForwardFlops(*MakeModel(options), options.input_shape, at::kFloat);
}

// 2 * tokens * (parameters of products) + both products of attention.
TEST(ForwardFlopsTest, OfAGptAreTheClosedForm) {
  const GptOptions gpt;
  for (const int64_t tokens : {1, 7, 128}) {
    const double products =
        12 * gpt.layers * gpt.width * gpt.width + gpt.vocabulary * gpt.width;
    const double attention = 2 * gpt.layers * tokens * gpt.width;
    EXPECT_EQ(*ForwardFlops(*Gpt(gpt), {tokens}, at::kLong),
              2 * tokens * (products + attention))
        << tokens;
  }
}

// PaLM's estimate, 6 N + 12 L H Q T a token, of GPT-2 (124M) and a Llama: N has
// no table that is only looked up, and nearly all of it are products.
TEST(ForwardFlopsTest, ThreePassesAreSixNAndAttentions) {
  const double tokens = 1024;
  const GptOptions gpt = *GptSize("gpt2");
  const double gpts =
      static_cast<double>(CountParameters(*ModelShapes(*Gpt(gpt))));
  EXPECT_EQ(gpts, 124439808);
  const double gpt_token = 6 * (gpts - gpt.context * gpt.width) +
                           12.0 * gpt.layers * gpt.width * tokens;
  EXPECT_NEAR(3 * *ForwardFlops(*Gpt(gpt), {1024}, at::kLong),
              tokens * gpt_token, 1e-3 * tokens * gpt_token);
  const LlamaOptions llama = *LlamaSize("tinyllama");
  const double llamas =
      static_cast<double>(CountParameters(*ModelShapes(*Llama(llama))));
  const double llama_token = 6 * (llamas - llama.vocabulary * llama.width) +
                             12.0 * llama.layers * llama.width * tokens;
  EXPECT_NEAR(3 * *ForwardFlops(*Llama(llama), {1024}, at::kLong),
              tokens * llama_token, 1e-3 * tokens * llama_token);
}

// Grouped-query attention has fewer keys, not fewer scores.
TEST(ForwardFlopsTest, OfLlama70bAreTheClosedForm) {
  const LlamaOptions llama = *LlamaSize("llama-3-70b");
  const double width = llama.width;
  const double keys = 1024;
  const double block =
      2 * width * width + 2 * width * keys + 3 * width * llama.ffn_width;
  const double products = llama.layers * block + llama.vocabulary * width;
  const double tokens = 64;
  EXPECT_DOUBLE_EQ(*ForwardFlops(*Llama(llama), {64}, at::kLong),
                   2 * tokens * (products + 2 * llama.layers * tokens * width));
}

// 1.814 and 4.089 billion multiplications, as published.
TEST(ForwardFlopsTest, OfResnetsAreTheirConvolutions) {
  EXPECT_EQ(OfImages("resnet18", 224), 2 * 1814073344.0);
  EXPECT_EQ(OfImages("resnet50", 224), 2 * 4089184256.0);
}

TEST(ForwardFlopsTest, AnInputThatDoesNotFitIsAnError) {
  EXPECT_EQ(ForwardFlops(*Gpt({}), {1, 2, 3}, at::kFloat).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MetaScopeTest, WhatIsMadeHasAShapeAndNoStorage) {
  std::optional<MetaScope> scope;
  scope.emplace();
  const at::Tensor made = at::zeros({1 << 20, 1 << 20});
  EXPECT_TRUE(made.is_meta());
  EXPECT_EQ(made.sizes(), (at::IntArrayRef{1 << 20, 1 << 20}));
  // Whatever device is asked for.
  EXPECT_TRUE(at::ones({3}, at::device(at::kCPU)).is_meta());
  EXPECT_TRUE(at::arange(5).is_meta());
  scope.reset();
  EXPECT_TRUE(at::zeros({2}).is_cpu());
}

TEST(MetaScopeTest, ModulesOfTorchAreMadeOnMeta) {
  const MetaScope scope;
  torch::nn::Transformer transformer(
      torch::nn::TransformerOptions(1 << 14, 16, 2, 2));
  torch::nn::BatchNorm2d norm(7);
  for (const at::Tensor& each : transformer->parameters()) {
    EXPECT_TRUE(each.is_meta());
    EXPECT_TRUE(each.requires_grad());
  }
  for (const at::Tensor& each : norm->buffers()) EXPECT_TRUE(each.is_meta());
}

TEST(MetaScopeTest, OperandsStayWhereTheyAre) {
  const at::Tensor before = at::ones({3});
  const MetaScope scope;
  EXPECT_TRUE((before + before).is_cpu());
  EXPECT_EQ((before + before).sum().item<float>(), 6);
}

TEST(MetaScopeTest, IsTheCallingThreadsAndNests) {
  const MetaScope scope;
  {
    const MetaScope inner;
    EXPECT_TRUE(at::zeros({2}).is_meta());
  }
  EXPECT_TRUE(at::zeros({2}).is_meta());
  std::thread([] { EXPECT_TRUE(at::zeros({2}).is_cpu()); }).join();
}

TEST(MetaScopeTest, AForwardGivesShapes) {
  const MetaScope scope;
  torch::nn::Linear linear(1 << 18, 1 << 19);
  const at::Tensor y = linear(at::randn({1 << 16, 1 << 18}));
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{1 << 16, 1 << 19}));
}

LayerSpecs Specs(const std::string& name, bool tokens) {
  ModelOptions options;
  options.name = name;
  options.input_shape =
      tokens ? std::vector<int64_t>{8} : std::vector<int64_t>{3, 64, 64};
  options.classes = 10;
  options.tokens = tokens;
  return *MakeModel(options);
}

void ExpectSame(const TensorShape& shape, const NamedTensors::value_type& made,
                bool is_buffer) {
  EXPECT_EQ(shape.name, made.first);
  EXPECT_EQ(at::IntArrayRef(shape.sizes), made.second.sizes());
  EXPECT_EQ(shape.dtype, made.second.scalar_type());
  EXPECT_EQ(shape.is_buffer, is_buffer);
}

TEST(ShapesTest, AreThoseOfTheModelThatIsMade) {
  for (const std::string name :
       {"cnn", "resnet18", "resnet50", "unet_tiny", "mlp_dropout", "gpt_tiny",
        "gpt_tiny_tied", "llama_tiny", "llama_tiny_tied"}) {
    const LayerSpecs specs = Specs(name, TakesTokens(name));
    const absl::StatusOr<std::vector<TensorShape>> found = ModelShapes(specs);
    ASSERT_TRUE(found.ok()) << name << ": " << found.status();
    const std::vector<TensorShape>& shapes = *found;
    const LayerList layers = MakeLayers(specs, 1);
    size_t next = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      for (const auto& each : NamedParameters({layers[i]})) {
        ASSERT_LT(next, shapes.size()) << name;
        EXPECT_EQ(shapes[next].layer, i);
        ExpectSame(shapes[next++], each, false);
      }
      for (const auto& each : NamedBuffers({layers[i]})) {
        ASSERT_LT(next, shapes.size()) << name;
        ExpectSame(shapes[next++], each, true);
      }
    }
    EXPECT_EQ(next, shapes.size()) << name;
  }
}

TEST(ShapesTest, ATiedParameterIsCountedOnce) {
  const std::vector<TensorShape> shapes =
      *ModelShapes(Specs("gpt_tiny_tied", true));
  EXPECT_EQ(shapes.back().name, "lm_head.weight");
  EXPECT_EQ(shapes.back().tied_to, "transformer.wte.weight");
  EXPECT_EQ(CountParameters(*ModelShapes(Specs("gpt_tiny", true))) -
                CountParameters(shapes),
            256 * 128);
}

// The published numbers; 70 billion floats would be 280 GB.
TEST(ShapesTest, LargeModelsAreCountedAtOnceAndWithoutMemory) {
  const double before = RssMib();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(CountParameters(*ModelShapes(*Gpt(*GptSize("gpt2-xl")))),
            1557611200);
  EXPECT_EQ(CountParameters(*ModelShapes(*Llama(*LlamaSize("llama-3-70b")))),
            70553706496);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  RecordProperty("seconds", std::to_string(took.count()));
  EXPECT_LT(took.count(), 1);
  EXPECT_LT(RssMib() - before, 100);
}

TEST(ShapesTest, WhatAModelCannotBeIsSaid) {
  LayerSpecs twice = Specs("gpt_tiny", true);
  twice[1].name = twice[0].name;
  EXPECT_EQ(ModelShapes(twice).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::meta_test
