// Sizes by name, and the numbers of parameters that were published for them.

#include "models/transformer/sizes.h"

#include <cstdint>
#include <string>

#include "core/model/layer_list.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/transformer/training_memory.h"

namespace tandem::sizes_test {
namespace {

TEST(SizesTest, GptsHaveThePublishedNumbersOfParameters) {
  const auto count = [](const char* name) {
    return ParameterCount(*GptSize(name));
  };
  // 6 x (12 x 384^2 + 13 x 384) + (320 + 256 + 2) x 384.
  EXPECT_EQ(count("gpt_baby"), 10868736);
  EXPECT_EQ(count("gpt2"), 124439808);
  EXPECT_EQ(count("gpt2-medium"), 354823168);
  EXPECT_EQ(count("gpt2-large"), 774030080);
  EXPECT_EQ(count("gpt2-xl"), 1557611200);
}

TEST(SizesTest, LlamasHaveThePublishedNumbersOfParameters) {
  const auto count = [](const char* name) {
    return ParameterCount(*LlamaSize(name));
  };
  // 6 x (3 x 384^2 + 3 x 384 x 1024 + 2 x 384) + (2 x 320 + 1) x 384.
  EXPECT_EQ(count("llama_baby"), 9982848);
  EXPECT_EQ(count("tinyllama"), 1100048384);
  EXPECT_EQ(count("llama-2-7b"), 6738415616);
  EXPECT_EQ(count("llama-3-8b"), 8030261248);
  EXPECT_EQ(count("llama-3-70b"), 70553706496);
  EXPECT_EQ(count("llama-3.2-1b"), 1235814400);
  EXPECT_EQ(count("llama-3.2-3b"), 3212749824);
}

int64_t MadeParameters(const LayerSpecs& specs, bool ties_lm_head) {
  int64_t count = 0;
  for (const auto& item : NamedParameters(MakeLayers(specs, 1))) {
    if (ties_lm_head && item.first == "lm_head.weight") continue;
    count += item.second.numel();
  }
  return count;
}

TEST(SizesTest, VitB16HasThePublishedNumberOfParameters) {
  EXPECT_EQ(ParameterCount(VitOptions()), 86567656);
}

TEST(SizesTest, TheArithmeticIsThatOfModelsThatAreMade) {
  for (const char* name : {"gpt_tiny", "gpt_tiny_tied"}) {
    const GptOptions options = *GptSize(name);
    EXPECT_EQ(ParameterCount(options),
              MadeParameters(*Gpt(options), options.ties_lm_head));
  }
  for (const char* name : {"llama_tiny", "llama_tiny_tied"}) {
    LlamaOptions options = *LlamaSize(name);
    options.attention_bias = true;
    options.mlp_bias = true;
    options.head_dim = 6;
    EXPECT_EQ(ParameterCount(options),
              MadeParameters(*Llama(options), options.ties_lm_head));
  }
}

TEST(SizesTest, ThoseThatAreGivenReplaceAModelsOwn) {
  const GptOptions gpt = WithSizes(*GptSize("gpt2"), {3, 0, 4});
  EXPECT_EQ(gpt.layers, 3);
  EXPECT_EQ(gpt.width, 768);
  EXPECT_EQ(gpt.heads, 4);
  const LlamaOptions llama =
      WithSizes(*LlamaSize("tinyllama"), {0, 64, 0, 2, 96});
  EXPECT_EQ(llama.layers, 22);
  EXPECT_EQ(llama.width, 64);
  EXPECT_EQ(llama.kv_heads, 2);
  EXPECT_EQ(llama.ffn_width, 96);
}

TEST(SizesTest, UnknownNamesHaveNone) {
  EXPECT_FALSE(GptSize("llama_tiny").has_value());
  EXPECT_FALSE(LlamaSize("gpt2").has_value());
  EXPECT_THAT(GptSizes(), testing::Contains("gpt2-xl"));
  EXPECT_THAT(LlamaSizes(), testing::Contains("tinyllama"));
}

}  // namespace
}  // namespace tandem::sizes_test
