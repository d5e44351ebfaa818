// What transformers_parity_test cannot say: splits, decoding, initial values,
// errors.

#include "models/transformer/llama.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/model/layer_list.h"
#include "core/model/weight_gradient_sink.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/decoding/kv_cache.h"
#include "tests/models/rounding.h"

namespace tandem::llama_test {
namespace {

using testing::HasSubstr;

at::Tensor Tokens(int64_t count) {
  return (at::arange(2 * count, at::kLong) * 5 % 256).view({2, count});
}

TEST(LlamaTest, ALaterTokenChangesNoEarlierLogit) {
  const LayerList layers = MakeLayers(*Llama({}), 1);
  const at::Tensor before = Forward(layers, Tokens(7)).detach();
  at::Tensor changed = Tokens(7);
  changed.select(1, 4).add_(1);
  const at::Tensor after = Forward(layers, changed).detach();
  for (int64_t position = 0; position < 7; ++position) {
    EXPECT_EQ(after.select(1, position)
                  .allclose(before.select(1, position), 1e-6, 1e-7),
              position < 4)
        << position;
  }
}

TEST(LlamaTest, TokensOneByOneGiveTheLogitsOfAllAtOnce) {
  const LayerList layers = MakeLayers(*Llama({}), 1);
  const at::Tensor tokens = Tokens(7);
  KvCache cache(/*capacity=*/7);
  std::vector<at::Tensor> logits;
  for (const auto& part : tokens.split_with_sizes({3, 1, 1, 2}, 1)) {
    const DecodingScope scope(&cache);
    logits.push_back(Forward(layers, part));
  }
  EXPECT_TRUE(IsWithinRoundings(at::cat(logits, 1),
                                Forward(layers, tokens).detach(), 256));
}

// Backward in two parts, as zero-bubble schedules run it.
TEST(LlamaTest, GradientsLeftForLaterAreTheSame) {
  const auto gradients = [](bool in_two_parts) {
    const LayerList layers = MakeLayers(*Llama({}), 1);
    const auto sink = in_two_parts ? std::make_shared<WeightGradientSink>()
                                   : std::shared_ptr<WeightGradientSink>();
    {
      const WeightGradientSink::Scope scope(sink);
      Forward(layers, Tokens(5)).square().sum().backward();
    }
    if (in_two_parts) {
      EXPECT_GT(sink->size(), 2 * 9);
      EXPECT_TRUE(sink->Flush().ok());
    }
    std::vector<at::Tensor> all;
    for (const auto& item : NamedParameters(layers)) {
      all.push_back(item.second.grad());
    }
    return all;
  };
  const std::vector<at::Tensor> expected = gradients(false);
  const std::vector<at::Tensor> actual = gradients(true);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(IsWithinRoundings(actual[i], expected[i], 256)) << i;
  }
}

TEST(LlamaTest, InitialValuesAreHuggingFaces) {
  for (const auto& [name, values] :
       NamedParameters(MakeLayers(*Llama({}), 1))) {
    if (values.dim() == 1) {
      EXPECT_TRUE(values.eq(1).all().item<bool>()) << name;
      continue;
    }
    const double root_n = std::sqrt(values.numel());
    EXPECT_NEAR(values.std().item<double>() / 0.02, 1, 3.6 / root_n) << name;
    EXPECT_NEAR(values.mean().item<double>() / 0.02, 0, 5 / root_n) << name;
  }
}

TEST(LlamaTest, ATiedHeadIsTheEmbedding) {
  LlamaOptions options;
  options.ties_lm_head = true;
  const NamedTensors tensors = NamedParameters(MakeLayers(*Llama(options), 1));
  EXPECT_EQ(tensors.front().first, "model.embed_tokens.weight");
  EXPECT_EQ(tensors.back().first, "lm_head.weight");
  EXPECT_TRUE(tensors.front().second.is_same(tensors.back().second));
}

TEST(LlamaTest, SizesThatDoNotFitAreRefusedByName) {
  const auto error = [](void (*change)(LlamaOptions&)) {
    LlamaOptions options;
    change(options);
    return std::string(Llama(options).status().message());
  };
  EXPECT_THAT(error([](LlamaOptions& o) { o.layers = 0; }),
              HasSubstr("layers 0: expected 1 or more"));
  EXPECT_THAT(error([](LlamaOptions& o) { o.kv_heads = 3; }),
              HasSubstr("4 heads and 3 kv_heads"));
  EXPECT_THAT(error([](LlamaOptions& o) { o.head_dim = 5; }),
              HasSubstr("head_dim 5"));
  EXPECT_THAT(error([](LlamaOptions& o) { o.width = 63; }),
              HasSubstr("width 63 and 4 heads"));
  EXPECT_THAT(error([](LlamaOptions& o) { o.rope_theta = 0; }),
              HasSubstr("rope_theta"));
}

}  // namespace
}  // namespace tandem::llama_test
