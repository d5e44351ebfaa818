
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/testing/statuses.h"
#include "datasets/tokenizers/tokenizer.h"
#include "tools/generation/model_tokens.h"

namespace tandem::fitting_tokenizer_test {
namespace {

using testing::ElementsAre;

// It has a size, maybe an end of text, and nothing else.
class SizedTokenizer : public Tokenizer {
 public:
  explicit SizedTokenizer(int64_t size,
                          std::optional<uint32_t> end = std::nullopt)
      : size_(size), end_(end) {}

  absl::StatusOr<std::vector<uint32_t>> Encode(
      absl::string_view, SpecialTokensInText) const override {
    return std::vector<uint32_t>();
  }
  std::string Decode(absl::Span<const uint32_t>) const override { return ""; }
  int64_t vocabulary_size() const override { return size_; }
  std::optional<uint32_t> end_of_text() const override { return end_; }
  const std::vector<SpecialToken>& special_tokens() const override {
    return special_;
  }
  const std::vector<uint32_t>& prefix() const override { return nothing_; }
  const std::vector<uint32_t>& suffix() const override { return nothing_; }

 private:
  const int64_t size_;
  const std::optional<uint32_t> end_;
  const std::vector<SpecialToken> special_ = {};
  const std::vector<uint32_t> nothing_ = {};
};

bool Fits(const Tokenizer& tokenizer, int64_t model, int64_t texts = 0) {
  return CheckTokenizerFits(tokenizer, model, texts).ok();
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
  EXPECT_EQ(CheckTokenizerFits(SizedTokenizer(257), 1000, 0).message(),
            "it has 257 tokens, but the model knows 1000");
  EXPECT_FALSE(Fits(SizedTokenizer(257), 50257));
  EXPECT_FALSE(Fits(SizedTokenizer(32000), 50257));
  EXPECT_EQ(CheckTokenizerFits(SizedTokenizer(128256), 50257, 0).message(),
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
  EXPECT_THAT(CheckTokenizerFits(SizedTokenizer(257), 50257, 901),
              Says("but the texts that the model has learnt from had 901"));
  EXPECT_FALSE(Fits(SizedTokenizer(60000), 50257, 901));
}

std::vector<int64_t> EndTokens(const std::string& config,
                               const std::string& generation_config,
                               const Tokenizer* tokenizer) {
  const auto ends = AllEndTokens(config, generation_config, tokenizer, 300);
  EXPECT_TRUE(ends.ok()) << ends.status();
  return *ends;
}

TEST(EndTokensTest, ThoseOfEveryFileAndOfTheTokenizerOnce) {
  const SizedTokenizer tokenizer(300, 256);
  EXPECT_THAT(EndTokens(R"({"eos_token_id": 7})",
                        R"({"eos_token_id": [8, 7, 9]})", &tokenizer),
              ElementsAre(7, 8, 9, 256));
  EXPECT_THAT(EndTokens("", "", &tokenizer), ElementsAre(256));
  EXPECT_THAT(EndTokens("{}", R"({"eos_token_id": null})", nullptr),
              ElementsAre());
  // Beyond the model's vocabulary, and what some write for none.
  EXPECT_THAT(EndTokens(R"({"eos_token_id": [300, 299, -1]})", "", nullptr),
              ElementsAre(299));
}

TEST(EndTokensTest, WhatIsNoTokenIsRefusedByItsFile) {
  for (const char* const wrong :
       {R"({"eos_token_id": "x"})", R"({"eos_token_id": [1.5]})", "[]", "{"}) {
    for (const bool generation : {false, true}) {
      const auto ends = AllEndTokens(generation ? "" : wrong,
                                     generation ? wrong : "", nullptr, 300);
      EXPECT_THAT(ends.status(),
                  InvalidArgument(generation ? "generation_config.json: it "
                                             : "config.json: it "));
    }
  }
}

}  // namespace
}  // namespace tandem::fitting_tokenizer_test
