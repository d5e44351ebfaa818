#include "tools/generation/end_tokens.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/generation/sized_tokenizer.h"

namespace tandem::end_tokens_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> EndsOf(const std::string& config,
                            const std::string& generation_config,
                            const Tokenizer* tokenizer) {
  const auto ends = AllEndTokens(config, generation_config, tokenizer, 300);
  EXPECT_TRUE(ends.ok()) << ends.status();
  return *ends;
}

TEST(EndTokensTest, ThoseOfEveryFileAndOfTheTokenizerOnce) {
  const SizedTokenizer tokenizer(300, 256);
  EXPECT_THAT(EndsOf(R"({"eos_token_id": 7})", R"({"eos_token_id": [8, 7, 9]})",
                     &tokenizer),
              ElementsAre(7, 8, 9, 256));
  EXPECT_THAT(EndsOf("", "", &tokenizer), ElementsAre(256));
  EXPECT_THAT(EndsOf("{}", R"({"eos_token_id": null})", nullptr),
              ElementsAre());
  // Beyond the model's vocabulary, and what some write for none.
  EXPECT_THAT(EndsOf(R"({"eos_token_id": [300, 299, -1]})", "", nullptr),
              ElementsAre(299));
}

TEST(EndTokensTest, WhatIsNoTokenIsRefusedByItsFile) {
  for (const char* const wrong :
       {R"({"eos_token_id": "x"})", R"({"eos_token_id": [1.5]})", "[]", "{"}) {
    for (const bool generation : {false, true}) {
      const auto ends = AllEndTokens(generation ? "" : wrong,
                                     generation ? wrong : "", nullptr, 300);
      EXPECT_EQ(ends.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(ends.status().message()),
                  HasSubstr(generation ? "generation_config.json: it "
                                       : "config.json: it "));
    }
  }
}

}  // namespace
}  // namespace tandem::end_tokens_test
