// What Python's tokenizers and tiktoken make of awkward texts: make_parity.py.

#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "absl/strings/escaping.h"
#include "core/base/utf8.h"
#include "datasets/tokenizers/byte_pair_files.h"
#include "datasets/tokenizers/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/datasets/tokenizers/parity_cases.h"

namespace tandem::parity_test {
namespace {

using Json = nlohmann::json;

std::string DataFile(const std::string& name) {
  return "tests/datasets/tokenizers/testdata/" + name;
}

const Json& Expected() {
  static const auto* const expected =
      new Json(ReadParity(DataFile("parity.json")));
  return *expected;
}

std::unique_ptr<Tokenizer> Open(const std::string& name) {
  if (name != "tiktoken") return OpenOrFail(DataFile(name));
  auto tokenizer =
      ReadTiktokenRanks(DataFile("llama3/tokenizer.tiktoken"), kLlama3Pattern);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

class ParityTest : public testing::TestWithParam<const char*> {
 protected:
  const std::string name_ = GetParam();
  const std::unique_ptr<Tokenizer> tokenizer_ = Open(name_);
};

TEST_P(ParityTest, AwkwardTextsHaveTheSameTokens) {
  ASSERT_GT(Expected()["cases"].size(), 200);
  for (const Json& each : Expected()["cases"]) {
    const std::string bytes = DecodedBytes(each["bytes"]);
    const Tokens tokens = EncodeOrFail(*tokenizer_, bytes);
    EXPECT_EQ(tokens, each[name_].get<Tokens>()) << absl::CHexEscape(bytes);
    EXPECT_EQ(tokenizer_->Decode(tokens), DecodedBytes(each["text"]))
        << absl::CHexEscape(bytes);
  }
}

TEST_P(ParityTest, SpecialTokensCanBeOrdinaryText) {
  if (name_ == "tiktoken") return;  // it was read without any
  for (const Json& each : Expected()["cases"]) {
    const std::string bytes = DecodedBytes(each["bytes"]);
    EXPECT_EQ(EncodeOrFail(*tokenizer_, bytes, SpecialTokensInText::kOrdinary),
              each[name_ + "_ordinary"].get<Tokens>())
        << absl::CHexEscape(bytes);
  }
}

TEST_P(ParityTest, LongLinesHaveTheSameTokens) {
  if (name_ == "tiktoken") return;  // takes minutes there
  for (const Json& each : Expected()["long"]) {
    const std::string text = LongText(each);
    const Tokens tokens = EncodeOrFail(*tokenizer_, text);
    EXPECT_EQ(TokenDigest(tokens), each[name_]) << each["piece"];
    EXPECT_EQ(tokenizer_->Decode(tokens), text) << each["piece"];
  }
}

TEST_P(ParityTest, TextsComeBack) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes;
    for (auto count = random() % 40; count > 0; --count) {
      bytes.push_back(static_cast<char>(random() % 256));
    }
    const std::string text = ReplaceInvalidUtf8(bytes);
    EXPECT_EQ(tokenizer_->Decode(EncodeOrFail(*tokenizer_, bytes)), text)
        << absl::CHexEscape(bytes);
    EXPECT_EQ(EncodeOrFail(*tokenizer_, bytes),
              EncodeOrFail(*tokenizer_, text));
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, ParityTest,
                         testing::Values("gpt2", "llama3", "tiktoken"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::parity_test
