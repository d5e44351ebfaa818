// What Python's sentencepiece makes of awkward texts:
// sentence_piece/make_parity.py.

#include "datasets/tokenizers/sentence_piece_tokenizer.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
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

std::string Given(const std::string& name) {
  std::ifstream file(
      absl::StrCat("tests/datasets/tokenizers/sentence_piece/testdata/", name,
                   ".model"),
      std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string CheckError(const std::string& model) {
  const absl::Status status = CheckSentencePiece(model);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  return std::string(status.message());
}

// A model of nothing but a normaliser with this character map, short enough for
// lengths of two bytes.
std::string WithCharsmap(const std::string& map) {
  const auto field = [](char tag, const std::string& contents) {
    std::string text(1, tag);
    text += static_cast<char>(0x80 | (contents.size() & 0x7f));
    text += static_cast<char>(contents.size() >> 7);
    return text + contents;
  };
  return field(0x1a, field(0x12, map));
}

// A trie of so many units, all alike.
std::string Charsmap(uint32_t units, uint32_t unit, const std::string& rest) {
  std::string map(4 + 4 * units, '\0');
  const uint32_t size = 4 * units;
  std::memcpy(map.data(), &size, 4);
  for (uint32_t i = 0; i < units; ++i) std::memcpy(&map[4 + 4 * i], &unit, 4);
  return map + rest;
}

TEST(ModelCheckTest, ModelsAreKnownByTheirBeginning) {
  EXPECT_TRUE(IsSentencePiece(Given("bpe")));
  EXPECT_TRUE(IsSentencePiece(Given("unigram")));
  EXPECT_FALSE(IsSentencePiece("IQ== 0\n"));
  EXPECT_FALSE(IsSentencePiece(""));
}

TEST(ModelCheckTest, WholeModelsPass) {
  EXPECT_TRUE(CheckSentencePiece(Given("bpe")).ok());
  EXPECT_TRUE(CheckSentencePiece(Given("unigram")).ok());
}

TEST(ModelCheckTest, CharacterMapsThatLeadAstrayAreFound) {
  const std::string end(1, '\0');
  EXPECT_TRUE(CheckSentencePiece(WithCharsmap(Charsmap(256, 0, end))).ok());
  // Too short for 256 children.
  EXPECT_THAT(CheckError(WithCharsmap(Charsmap(255, 0, end))),
              HasSubstr("leads out of itself"));
  EXPECT_THAT(CheckError(WithCharsmap(Charsmap(256, 256u << 10, end))),
              HasSubstr("leads out of itself"));
  // A value, which is 1, of nothing but a 0: with bit 8 each has one.
  EXPECT_THAT(CheckError(WithCharsmap(Charsmap(256, 1u << 8 | 1, end))),
              HasSubstr("replaces by what is not there"));
  EXPECT_THAT(CheckError(WithCharsmap(Charsmap(256, 0, "x"))),
              HasSubstr("has no end"));
  EXPECT_THAT(CheckError(WithCharsmap(Charsmap(256, 0, ""))),
              HasSubstr("is cut off"));
  EXPECT_THAT(CheckError(WithCharsmap("abc")), HasSubstr("is cut off"));
}

TEST(ModelCheckTest, FilesThatAreCutOffAreRefused) {
  const std::string model = Given("bpe");
  EXPECT_THAT(CheckError(model.substr(0, model.size() - 1)),
              HasSubstr("the file is cut off"));
  EXPECT_THAT(CheckError("\x0b"), HasSubstr("the file is cut off"));
}

// Whatever is in a file, it is refused or read, and what it reads encodes.
TEST(ModelCheckTest, DamagedModelsDoNoHarm) {
  const std::string path = testing::TempDir() + "/damaged.model";
  std::mt19937 random(1);
  for (const char* const name : {"bpe", "unigram"}) {
    const std::string whole = Given(name);
    int read = 0;
    for (int i = 0; i < 200; ++i) {
      std::string model = whole;
      for (auto changes = 1 + random() % 3; changes > 0; --changes) {
        model[1 + random() % (model.size() - 1)] =
            static_cast<char>(random() % 256);
      }
      std::ofstream(path, std::ios::binary | std::ios::trunc) << model;
      const auto tokenizer = OpenTokenizer(path);
      if (!tokenizer.ok()) continue;
      ++read;
      const auto tokens =
          (*tokenizer)->Encode("Hello, W\xc3\xbcrde \xe4\xb8\xad \xef\xac\x81");
      if (tokens.ok()) (*tokenizer)->Decode(*tokens);
    }
    EXPECT_GT(read, 10) << name;
  }
}

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
    const std::string bytes = DecodedBytes(each["bytes"]);
    EXPECT_EQ(EncodeOrFail(*tokenizer_, bytes), each[name_].get<Tokens>())
        << absl::CHexEscape(bytes);
  }
}

// With the space that stands before each text.
TEST_P(SentencePieceTokenizerTest, TokensHaveTheSameText) {
  for (const Json& each : Expected()["cases"]) {
    const std::string text = DecodedBytes(each[name_ + "_text"]);
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
    EXPECT_EQ(TokenDigest(tokens), each[name_]) << each["piece"];
  }
}

TEST_P(SentencePieceTokenizerTest, SeveralThreadsMayEncode) {
  const std::string text = DecodedBytes(Expected()["cases"][4]["bytes"]);
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
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDataLoss,
                       folder + "/tokenizer.model: no sentencepiece model"));
}

}  // namespace
}  // namespace tandem::sentence_piece_tokenizer_test
