// What Python's tokenizers and tiktoken make of awkward texts: make_parity.py.

#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "core/base/sha256.h"
#include "datasets/tokenizers/byte_pair/utf8.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tiktoken_ranks.h"
#include "datasets/tokenizers/tokenizer.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<uint32_t>;

std::string DataFile(const std::string& name) {
  return "tests/datasets/tokenizers/testdata/" + name;
}

const Json& Expected() {
  static const auto* const expected =
      new Json(Json::parse(std::ifstream(DataFile("parity.json"))));
  return *expected;
}

std::unique_ptr<Tokenizer> Open(const std::string& name) {
  auto tokenizer =
      name == "tiktoken"
          ? ReadTiktokenRanks(DataFile("llama3/tokenizer.tiktoken"),
                              kLlama3Pattern)
          : OpenTokenizer(DataFile(name));
  if (!tokenizer.ok()) ADD_FAILURE() << tokenizer.status();
  return *std::move(tokenizer);
}

std::string Unescape(const Json& base64) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(base64.get<std::string>(), &bytes));
  return bytes;
}

Tokens Encode(const Tokenizer& tokenizer, const std::string& text,
              SpecialTokensInText special = SpecialTokensInText::kRecognized) {
  const auto tokens = tokenizer.Encode(text, special);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return tokens.value_or(Tokens());
}

std::string Digest(const Tokens& tokens) {
  Sha256 hash;
  hash.Update(tokens.data(), tokens.size() * sizeof(uint32_t));
  return hash.HexDigest();
}

class ParityTest : public testing::TestWithParam<const char*> {
 protected:
  const std::string name_ = GetParam();
  const std::unique_ptr<Tokenizer> tokenizer_ = Open(name_);
};

TEST_P(ParityTest, AwkwardTextsHaveTheSameTokens) {
  ASSERT_GT(Expected()["cases"].size(), 200);
  for (const Json& each : Expected()["cases"]) {
    const std::string bytes = Unescape(each["bytes"]);
    const Tokens tokens = Encode(*tokenizer_, bytes);
    EXPECT_EQ(tokens, each[name_].get<Tokens>()) << absl::CHexEscape(bytes);
    EXPECT_EQ(tokenizer_->Decode(tokens), Unescape(each["text"]))
        << absl::CHexEscape(bytes);
  }
}

TEST_P(ParityTest, SpecialTokensCanBeOrdinaryText) {
  if (name_ == "tiktoken") return;  // it was read without any
  for (const Json& each : Expected()["cases"]) {
    const std::string bytes = Unescape(each["bytes"]);
    EXPECT_EQ(Encode(*tokenizer_, bytes, SpecialTokensInText::kOrdinary),
              each[name_ + "_ordinary"].get<Tokens>())
        << absl::CHexEscape(bytes);
  }
}

TEST_P(ParityTest, LongLinesHaveTheSameTokens) {
  if (name_ == "tiktoken") return;  // takes minutes there
  for (const Json& each : Expected()["long"]) {
    std::string text;
    for (int i = each["times"].get<int>(); i > 0; --i) {
      text += each["piece"].get<std::string>();
    }
    const Tokens tokens = Encode(*tokenizer_, text);
    EXPECT_EQ(Digest(tokens), each[name_]) << each["piece"];
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
    EXPECT_EQ(tokenizer_->Decode(Encode(*tokenizer_, bytes)), text)
        << absl::CHexEscape(bytes);
    EXPECT_EQ(Encode(*tokenizer_, bytes), Encode(*tokenizer_, text));
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, ParityTest,
                         testing::Values("gpt2", "llama3", "tiktoken"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem
