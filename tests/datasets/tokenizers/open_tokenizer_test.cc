#include "datasets/tokenizers/open_tokenizer.h"

#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "datasets/tokenizers/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::open_tokenizer_test {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kData[] = "tests/datasets/tokenizers/testdata/";

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string NewFolder() {
  static int count = 0;
  const std::string folder =
      absl::StrCat(testing::TempDir(), "/tokenizer", ++count);
  mkdir(folder.c_str(), 0700);
  return folder;
}

std::string Write(const std::string& name, const std::string& contents) {
  const std::string path = absl::StrCat(NewFolder(), "/", name);
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

std::string ErrorText(const std::string& path) {
  const auto tokenizer = OpenTokenizer(path);
  EXPECT_FALSE(tokenizer.ok()) << path;
  return std::string(tokenizer.status().message());
}

// Llama 3's in small, changed.
Json Llama3() {
  return Json::parse(Contents(absl::StrCat(kData, "llama3/tokenizer.json")));
}

std::string ErrorOfJson(const Json& json) {
  return ErrorText(Write("tokenizer.json", json.dump()));
}

TEST(OpenTokenizerTest, AFolderOfGpt2sFiles) {
  const auto tokenizer = OpenTokenizer(absl::StrCat(kData, "gpt2"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocabulary_size(), 901);
  EXPECT_EQ((*tokenizer)->end_of_text(), 900);
  EXPECT_THAT((*tokenizer)->prefix(), IsEmpty());
  ASSERT_EQ((*tokenizer)->special_tokens().size(), 1);
  EXPECT_EQ((*tokenizer)->special_tokens()[0].text, "<|endoftext|>");
  EXPECT_EQ((*tokenizer)->Decode({900, 100000}), "<|endoftext|>");
}

TEST(OpenTokenizerTest, AFolderWithATokenizerJson) {
  const auto tokenizer = OpenTokenizer(absl::StrCat(kData, "llama3"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocabulary_size(), 1005);
  EXPECT_EQ((*tokenizer)->end_of_text(), 1001);
  EXPECT_THAT((*tokenizer)->prefix(), ElementsAre(1000));
  EXPECT_THAT((*tokenizer)->suffix(), IsEmpty());
  EXPECT_EQ((*tokenizer)->special_tokens().size(), 3);
}

TEST(OpenTokenizerTest, WhatIsNoTokenizerIsSaid) {
  EXPECT_THAT(ErrorText("no/such/tokenizer"), HasSubstr("no/such/tokenizer"));
  EXPECT_THAT(ErrorText(NewFolder()), HasSubstr("expected bytes"));
  EXPECT_THAT(ErrorText(Write("tokenizer.json", "{")), HasSubstr("no JSON"));
  EXPECT_THAT(ErrorText(Write("x.model", "aGk= 0\nhello\n")),
              HasSubstr("line 2: expected a word in Base64"));
  EXPECT_THAT(ErrorText(absl::StrCat(kData, "llama3/tokenizer.tiktoken")),
              HasSubstr("has 1000 ranks"));
}

// Read as if they were not there they would give other tokens.
TEST(OpenTokenizerTest, FieldsThatAreNotKnownAreErrors) {
  Json json = Llama3();
  json["normalizer"] = {{"type", "NFKC"}};
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("normalizer is NFKC"));
  json = Llama3();
  json["model"]["type"] = "WordPiece";
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("WordPiece; expected BPE"));
  json = Llama3();
  json["model"]["dropout"] = 0.1;
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("has a dropout"));
  json = Llama3();
  json["pre_tokenizer"] = {{"type", "Metaspace"}};
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("pre_tokenizer"));
  json = Llama3();
  json["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Contiguous";
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("'Contiguous'"));
  json = Llama3();
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "a|\\d{1,3}+";
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("reads {1,3}+ otherwise"));
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "a*";
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("can match no character"));
  json = Llama3();
  json["added_tokens"][0]["lstrip"] = true;
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("has lstrip"));
  json = Llama3();
  json["post_processor"] = {{"type", "BertProcessing"}};
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("BertProcessing"));
}

std::vector<uint32_t> EncodedTokens(const Json& json, const std::string& text) {
  const auto tokenizer = OpenTokenizer(Write("tokenizer.json", json.dump()));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto tokens = (*tokenizer)->Encode(text);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return *tokens;
}

// GPT-NeoX's and MPT's tokenizers do so: a letter and its mark are one
// character first.
TEST(OpenTokenizerTest, TextsAreBroughtToNfc) {
  Json json = Llama3();
  const std::string apart = "cafe\u0301 \u1112\u1161\u11ab <|eot_id|>";
  const std::string together = "caf\u00e9 \ud55c <|eot_id|>";
  EXPECT_NE(EncodedTokens(json, apart), EncodedTokens(json, together));
  const auto expected = EncodedTokens(json, together);
  for (const char* const normalizer :
       {R"({"type": "NFC"})",
        R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})"}) {
    json["normalizer"] = Json::parse(normalizer);
    EXPECT_EQ(EncodedTokens(json, apart), expected);
    EXPECT_EQ(EncodedTokens(json, together), expected);
  }
}

// A tokenizer like StarCoder's, which lacks F1 beside those that no text has.
TEST(OpenTokenizerTest, BytesThatNoTextHasMayHaveNoToken) {
  Json json = Llama3();
  const std::string text = "caf\u00e9 \U0001F600 \xc0\xff";
  const auto expected = EncodedTokens(json, text);
  // The characters that stand for bytes C0, C1, F1 and F5 to FF.
  for (int byte = 0xc0; byte < 0x100; ++byte) {
    if (byte > 0xc1 && byte != 0xf1 && byte < 0xf5) continue;
    const std::string word = {'\xc3', static_cast<char>(byte - 0x40)};
    ASSERT_EQ(json["model"]["vocab"].erase(word), 1) << byte;
  }
  EXPECT_EQ(EncodedTokens(json, text), expected);
  const auto tokenizer = OpenTokenizer(Write("tokenizer.json", json.dump()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto lost = (*tokenizer)->Encode("a \U00040000 b");
  EXPECT_THAT(
      lost.status(),
      InvalidArgument("no token for the byte 0xF1 of the character U+40000"));
}

// Tokens of the text as it is come before tokens of the normalized one, as in
// tokenizers' two tries.
TEST(OpenTokenizerTest, AddedTokensThatAreNotNormalizedComeFirst) {
  Json json = Llama3();
  const auto add = [&](const char* text, int id, bool normalized) {
    json["added_tokens"].push_back({{"id", id},
                                    {"content", text},
                                    {"special", false},
                                    {"normalized", normalized}});
  };
  add("abc", 2000, true);
  add("cde", 2001, false);
  add("ab", 2002, true);
  EXPECT_THAT(EncodedTokens(json, "abcde"), ElementsAre(2002, 2001));
  EXPECT_THAT(EncodedTokens(json, "abc"), ElementsAre(2000));
}

// tokenizer_config.json's name before the model's numbers, and those before the
// usual names.
TEST(OpenTokenizerTest, WhatEndsATextIsSaidBesideTheTokenizer) {
  const std::string path = Write("tokenizer.json", Llama3().dump());
  const std::string folder = path.substr(0, path.rfind('/'));
  const auto end = [&](const std::string& name) {
    const auto tokenizer = OpenTokenizer(name);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return (*tokenizer)->end_of_text();
  };
  const auto write = [&](const char* name, const char* json) {
    std::ofstream(absl::StrCat(folder, "/", name)) << json;
  };
  EXPECT_EQ(end(folder), 1001);
  write("config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(end(folder), 7);
  write("generation_config.json", R"({"eos_token_id": [90000, 1002, 1001]})");
  EXPECT_EQ(end(folder), 1002);
  write("tokenizer_config.json", R"({"eos_token": "no such token"})");
  EXPECT_EQ(end(folder), 1002);
  for (const char* const config :
       {R"({"eos_token": "<|begin_of_text|>"})",
        R"({"eos_token": {"content": "<|begin_of_text|>"}})"}) {
    write("tokenizer_config.json", config);
    EXPECT_EQ(end(folder), 1000);
    EXPECT_EQ(end(path), 1000);
  }
  write("tokenizer_config.json", "{\n\"eos_token\": None}");
  EXPECT_THAT(ErrorText(folder), HasSubstr("tokenizer_config.json is no JSON "
                                           "object: line 2 has 'None'"));
  write("tokenizer_config.json", "[]");
  EXPECT_THAT(ErrorText(folder), HasSubstr("tokenizer_config.json is no JSON"));
}

TEST(OpenTokenizerTest, FieldsThatCannotBeAreErrors) {
  Json json = Llama3();
  json["model"]["vocab"]["hello"] = -1;
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("'hello' has the number -1"));
  json["model"]["vocab"]["hello"] = int64_t{1} << 40;
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("'hello' has the number 1099"));
  json["model"]["vocab"]["hello"] = "five";
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("'hello' has no number"));
  json = Llama3();
  json["model"]["vocab"].erase("A");
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("no token for the byte 0x41"));
  json = Llama3();
  json["model"]["merges"].push_back({"A", "zzzz"});
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("merge of 'A' and 'zzzz'"));
  json["model"]["merges"].back() = "A";
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("no pair of words"));
  json = Llama3();
  json["added_tokens"][0]["id"] = int64_t{1} << 40;
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("added_tokens"));
  json = Llama3();
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a";
  EXPECT_THAT(ErrorOfJson(json), HasSubstr("the regular expression (a"));
  EXPECT_THAT(ErrorOfJson(Json::object()), HasSubstr("cannot be used"));
}

TEST(OpenTokenizerTest, AnExpressionWithoutEndGivesUp) {
  Json json = Llama3();
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
      "(?:a*a*)*[bd]";
  const auto tokenizer = OpenTokenizer(Write("tokenizer.json", json.dump()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto tokens = (*tokenizer)->Encode(std::string(60, 'a') + "c");
  EXPECT_EQ(tokens.status().code(), absl::StatusCode::kResourceExhausted)
      << tokens.status();
}

// Llama 3's number of ranks, with words of no meaning.
TEST(OpenTokenizerTest, RanksOfLlama3sNumberHaveItsSpecialTokens) {
  std::string ranks;
  for (int i = 0; i < 128000; ++i) {
    const std::string word =
        i < 256 ? std::string(1, static_cast<char>(i))
                : absl::StrCat("\x01", absl::Hex(i, absl::kZeroPad8));
    absl::StrAppend(&ranks, absl::Base64Escape(word), " ", i, "\n");
  }
  const auto tokenizer = OpenTokenizer(Write("tokenizer.model", ranks));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocabulary_size(), 128256);
  EXPECT_EQ((*tokenizer)->end_of_text(), 128001);
  EXPECT_THAT((*tokenizer)->prefix(), ElementsAre(128000));
  const auto tokens = (*tokenizer)->Encode("a<|eot_id|>");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(*tokens, ElementsAre('a', 128009));
  EXPECT_EQ((*tokenizer)->Decode({128255}), "<|reserved_special_token_247|>");
}

TEST(BytesTokenizerTest, AnyBytesComeBack) {
  const auto tokenizer = OpenTokenizer("bytes");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const auto tokens = (*tokenizer)->Encode(all);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(tokens->size(), 256);
  EXPECT_EQ(tokens->front(), 0);
  EXPECT_EQ(tokens->back(), 255);
  EXPECT_EQ((*tokenizer)->Decode(*tokens), all);
}

TEST(BytesTokenizerTest, TheEndOfATextIsATokenAndNoText) {
  const auto tokenizer = OpenTokenizer("bytes");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocabulary_size(), 257);
  EXPECT_EQ((*tokenizer)->end_of_text(), 256);
  EXPECT_EQ((*tokenizer)->Decode({'a', 256, 'b', 1000}), "ab");
  EXPECT_TRUE((*tokenizer)->prefix().empty());
  const auto tokens = (*tokenizer)->Encode("h\xC3\xA9");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(*tokens, ElementsAre('h', 0xC3, 0xA9));
}

TEST(BytesTokenizerTest, UnknownNamesAreErrors) {
  const auto tokenizer = OpenTokenizer("no/such/tokenizer");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_THAT(tokenizer.status(), Says("no/such/tokenizer"));
}

}  // namespace
}  // namespace tandem::open_tokenizer_test
