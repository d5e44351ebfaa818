// What Python's sentencepiece makes of awkward texts:
// sentence_piece/make_parity.py.

#include "datasets/tokenizers/sentence_piece_tokenizer.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/tokenizers/parity_cases.h"

namespace tandem::sentence_piece_tokenizer_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string DataFile(const std::string& name) {
  return "tests/datasets/tokenizers/sentence_piece/testdata/" + name;
}

const Json& Expected() {
  static const auto* const expected =
      new Json(ReadParity(DataFile("parity.json")));
  return *expected;
}

class SentencePieceTokenizerTest : public testing::TestWithParam<const char*> {
 protected:
  const std::string name_ = GetParam();
  const std::unique_ptr<Tokenizer> tokenizer_ =
      OpenOrFail(DataFile(name_ + ".model"));
};

TEST_P(SentencePieceTokenizerTest, AwkwardTextsHaveTheSameTokens) {
  ASSERT_GT(Expected()["cases"].size(), 200);
  for (const Json& each : Expected()["cases"]) {
    const std::string bytes = BytesOf(each["bytes"]);
    EXPECT_EQ(EncodeOrFail(*tokenizer_, bytes), each[name_].get<Tokens>())
        << absl::CHexEscape(bytes);
  }
}

// With the space that stands before each text.
TEST_P(SentencePieceTokenizerTest, TokensHaveTheSameText) {
  for (const Json& each : Expected()["cases"]) {
    const std::string text = BytesOf(each[name_ + "_text"]);
    const std::string decoded = tokenizer_->Decode(each[name_].get<Tokens>());
    EXPECT_TRUE(decoded == text || decoded == " " + text)
        << absl::CHexEscape(decoded) << " " << absl::CHexEscape(text);
  }
}

TEST_P(SentencePieceTokenizerTest, PiecesOfATextCanBeDecodedOneByOne) {
  const Tokens tokens =
      EncodeOrFail(*tokenizer_, "All \xe4\xb8\xad W\xc3\xbcrde.");
  std::string text;
  for (const uint32_t token : tokens) text += tokenizer_->Decode({token});
  EXPECT_EQ(text, tokenizer_->Decode(tokens));
  EXPECT_TRUE(absl::StartsWith(text, " All ")) << text;
}

TEST_P(SentencePieceTokenizerTest, LongLinesHaveTheSameTokens) {
  for (const Json& each : Expected()["long"]) {
    const Tokens tokens = EncodeOrFail(*tokenizer_, LongText(each));
    EXPECT_EQ(DigestOf(tokens), each[name_]) << each["piece"];
  }
}

TEST_P(SentencePieceTokenizerTest, SeveralThreadsMayEncode) {
  const std::string text = BytesOf(Expected()["cases"][4]["bytes"]);
  const Tokens expected = EncodeOrFail(*tokenizer_, text);
  std::vector<int> same(4);
  std::vector<std::thread> threads;
  for (int& result : same) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        result += EncodeOrFail(*tokenizer_, text) == expected ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(same, ElementsAre(50, 50, 50, 50));
}

// sentencepiece's own: 0 unknown, 1 <s>, 2 </s>.
TEST_P(SentencePieceTokenizerTest, SpecialTokensAreTheModels) {
  EXPECT_THAT(tokenizer_->prefix(), ElementsAre(1));
  EXPECT_TRUE(tokenizer_->suffix().empty());
  EXPECT_EQ(tokenizer_->end_of_text(), 2u);
  EXPECT_EQ(tokenizer_->vocabulary_size(), name_ == "bpe" ? 700 : 500);
  EXPECT_EQ(tokenizer_->special_tokens().size(), 2u);
  EXPECT_EQ(tokenizer_->Decode({1, 2, 70000}), "");
  EXPECT_TRUE(tokenizer_->beginning_differs());
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceTokenizerTest,
                         testing::Values("unigram", "bpe"),
                         [](const auto& info) { return info.param; });

std::string Folder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy(DataFile("bpe.model"), folder + "/tokenizer.model");
  return folder;
}

// Llama 2's folders have both, of which the json asks for a normalizer.
TEST(SentencePieceFolderTest, AModelIsTakenWhereItsJsonCannotBe) {
  const std::string folder = Folder("both");
  EXPECT_EQ(OpenOrFail(folder)->vocabulary_size(), 700);
  std::ofstream(folder + "/tokenizer.json")
      << R"({"normalizer": {"type": "Prepend", "prepend": "_"},
             "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";
  EXPECT_EQ(OpenOrFail(folder)->vocabulary_size(), 700);
}

TEST(SentencePieceFolderTest, ADamagedModelIsNamed) {
  const std::string folder = Folder("damaged");
  fs::resize_file(folder + "/tokenizer.model", 5000);
  const absl::Status status = OpenTokenizer(folder).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(folder + "/tokenizer.model: no sentencepiece model"));
}

}  // namespace
}  // namespace tandem::sentence_piece_tokenizer_test
