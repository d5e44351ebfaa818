#include "tools/generation/fitting_tokenizer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/generation/sized_tokenizer.h"

namespace tandem::fitting_tokenizer_test {
namespace {

using ::testing::HasSubstr;

bool Fits(const Tokenizer& tokenizer, int64_t model, int64_t texts = 0) {
  return CheckTokenizerFits(tokenizer, model, texts).ok();
}

std::string ErrorOf(const Tokenizer& tokenizer, int64_t model,
                    int64_t texts = 0) {
  return std::string(CheckTokenizerFits(tokenizer, model, texts).message());
}

TEST(FittingTokenizerTest, ReleasedModelsAndTheirTokenizersFit) {
  struct Released {
    int64_t tokenizer, model;
  };
  for (const Released& each :
       std::vector<Released>{{50257, 50257},    // GPT-2
                             {50257, 50304},    // nanoGPT's
                             {50277, 50432},    // GPT-NeoX
                             {50295, 51200},    // Phi-2
                             {32000, 32000},    // Llama 2
                             {32001, 32000},    // with a token for padding
                             {128256, 128256},  // Llama 3
                             {32022, 32256},    // DeepSeek Coder
                             {100015, 102400},  // DeepSeek LLM
                             {151665, 152064},  // Qwen 2.5
                             {257, 320},        // bytes, and the baby GPT
                             {49152, 49152}}) {
    EXPECT_TRUE(Fits(SizedTokenizer(each.tokenizer), each.model))
        << each.tokenizer << " of " << each.model;
  }
}

TEST(FittingTokenizerTest, AnotherModelsDoNot) {
  EXPECT_EQ(ErrorOf(SizedTokenizer(257), 1000),
            "it has 257 tokens, but the model knows 1000");
  EXPECT_FALSE(Fits(SizedTokenizer(257), 50257));
  EXPECT_FALSE(Fits(SizedTokenizer(32000), 50257));
  EXPECT_EQ(ErrorOf(SizedTokenizer(128256), 50257),
            "it has 128256 tokens, but the model knows 50257");
  EXPECT_FALSE(Fits(SizedTokenizer(50257), 32000));
}

TEST(FittingTokenizerTest, BoundsAreATwentiethOrAFew) {
  EXPECT_TRUE(Fits(SizedTokenizer(872), 1000));
  EXPECT_FALSE(Fits(SizedTokenizer(871), 1000));
  EXPECT_TRUE(Fits(SizedTokenizer(1256), 1000));
  EXPECT_FALSE(Fits(SizedTokenizer(1257), 1000));
  EXPECT_TRUE(Fits(SizedTokenizer(95000), 100000));
  EXPECT_FALSE(Fits(SizedTokenizer(94999), 100000));
  EXPECT_TRUE(Fits(SizedTokenizer(105000), 100000));
  EXPECT_FALSE(Fits(SizedTokenizer(105001), 100000));
  // Without its end of text, the last of them.
  EXPECT_TRUE(Fits(SizedTokenizer(1257, 1256), 1000));
}

// A model may know more tokens than its texts ever had.
TEST(FittingTokenizerTest, WhatTheTextsHadCounts) {
  EXPECT_TRUE(Fits(SizedTokenizer(901), 50257, 901));
  EXPECT_THAT(
      ErrorOf(SizedTokenizer(257), 50257, 901),
      HasSubstr("but the texts that the model has learnt from had 901"));
  EXPECT_FALSE(Fits(SizedTokenizer(60000), 50257, 901));
}

}  // namespace
}  // namespace tandem::fitting_tokenizer_test
