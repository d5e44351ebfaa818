// Vocabularies as they were released, GPT-2's in tiktoken's format and
// Mistral's as sentencepiece models: what Python's tiktoken and sentencepiece
// make of awkward texts, of long ones and of a book (make_parity.py).

#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "datasets/tokenizers/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/tokenizers/parity_cases.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;

const Json& Expected() {
  static const auto* const expected = new Json(
      ReadParity("tests/datasets/tokenizers/released/testdata/parity.json"));
  return *expected;
}

// Which file, and what is asked of it.
struct Released {
  std::string name;  // in parity.json
  const char* file;  // the variable of the environment that has its path
  SpecialTokensInText special;
};

class ReleasedTest : public testing::TestWithParam<Released> {
 protected:
  Tokens Encode(const std::string& text) const {
    return EncodeOrFail(*tokenizer_, text, GetParam().special);
  }

  const std::string name_ = GetParam().name;
  const std::unique_ptr<Tokenizer> tokenizer_ =
      OpenOrFail(std::getenv(GetParam().file));
};

TEST_P(ReleasedTest, AwkwardTextsHaveTheSameTokens) {
  ASSERT_GT(Expected()["cases"].size(), 200);
  for (const Json& each : Expected()["cases"]) {
    const std::string bytes = DecodedBytes(each["bytes"]);
    EXPECT_EQ(Encode(bytes), each[name_].get<Tokens>())
        << absl::CHexEscape(bytes);
  }
}

TEST_P(ReleasedTest, LongLinesHaveTheSameTokens) {
  for (const Json& each : Expected()["long"]) {
    EXPECT_EQ(TokenDigest(Encode(LongText(each))), each[name_])
        << each["piece"];
  }
}

TEST_P(ReleasedTest, ABookHasTheSameTokens) {
  std::ifstream book(std::getenv("KING_JAMES_BIBLE"));
  Tokens tokens;
  int lines = 0;
  for (std::string line; std::getline(book, line); ++lines) {
    const Tokens line_tokens = Encode(line);
    tokens.insert(tokens.end(), line_tokens.begin(), line_tokens.end());
  }
  EXPECT_EQ(lines, 31103);
  EXPECT_EQ(TokenDigest(tokens), Expected()["book"][name_]);
}

INSTANTIATE_TEST_SUITE_P(
    Vocabularies, ReleasedTest,
    testing::Values(
        Released{"gpt2", "GPT2_RANKS", SpecialTokensInText::kRecognized},
        Released{"gpt2_ordinary", "GPT2_RANKS", SpecialTokensInText::kOrdinary},
        Released{"mistral", "MISTRAL_MODEL", SpecialTokensInText::kOrdinary},
        Released{"mistral_v3", "MISTRAL_MODEL_V3",
                 SpecialTokensInText::kRecognized}),
    [](const auto& info) { return info.param.name; });

TEST(ReleasedSpecialTokensTest, AreThoseOfTheirMakers) {
  const auto gpt2 = OpenOrFail(std::getenv("GPT2_RANKS"));
  EXPECT_EQ(gpt2->vocabulary_size(), 50257);
  EXPECT_EQ(gpt2->end_of_text(), 50256u);
  EXPECT_EQ(gpt2->special_tokens().size(), 1u);
  EXPECT_THAT(gpt2->prefix(), ElementsAre());
  const auto mistral = OpenOrFail(std::getenv("MISTRAL_MODEL"));
  EXPECT_EQ(mistral->vocabulary_size(), 32000);
  EXPECT_EQ(mistral->end_of_text(), 2u);
  EXPECT_THAT(mistral->prefix(), ElementsAre(1));
  EXPECT_EQ(mistral->special_tokens().size(), 2u);
  const auto third = OpenOrFail(std::getenv("MISTRAL_MODEL_V3"));
  EXPECT_EQ(third->vocabulary_size(), 32768);
  EXPECT_EQ(third->special_tokens().size(), 750u);
}

}  // namespace
}  // namespace tandem
