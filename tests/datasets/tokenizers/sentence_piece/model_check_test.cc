#include "datasets/tokenizers/sentence_piece/model_check.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::model_check_test {
namespace {

using ::testing::HasSubstr;

std::string Given(const std::string& name) {
  std::ifstream file(
      absl::StrCat("tests/datasets/tokenizers/sentence_piece/testdata/", name,
                   ".model"),
      std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string ErrorOf(const std::string& model) {
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
  EXPECT_THAT(ErrorOf(WithCharsmap(Charsmap(255, 0, end))),
              HasSubstr("leads out of itself"));
  EXPECT_THAT(ErrorOf(WithCharsmap(Charsmap(256, 256u << 10, end))),
              HasSubstr("leads out of itself"));
  // A value, which is 1, of nothing but a 0: with bit 8 each has one.
  EXPECT_THAT(ErrorOf(WithCharsmap(Charsmap(256, 1u << 8 | 1, end))),
              HasSubstr("replaces by what is not there"));
  EXPECT_THAT(ErrorOf(WithCharsmap(Charsmap(256, 0, "x"))),
              HasSubstr("has no end"));
  EXPECT_THAT(ErrorOf(WithCharsmap(Charsmap(256, 0, ""))),
              HasSubstr("is cut off"));
  EXPECT_THAT(ErrorOf(WithCharsmap("abc")), HasSubstr("is cut off"));
}

TEST(ModelCheckTest, FilesThatAreCutOffAreRefused) {
  const std::string model = Given("bpe");
  EXPECT_THAT(ErrorOf(model.substr(0, model.size() - 1)),
              HasSubstr("the file is cut off"));
  EXPECT_THAT(ErrorOf("\x0b"), HasSubstr("the file is cut off"));
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

}  // namespace
}  // namespace tandem::model_check_test
