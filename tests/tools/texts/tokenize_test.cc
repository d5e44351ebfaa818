#include "tools/texts/tokenize.h"

#include <sys/stat.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "datasets/tokens/token_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::tokenize_test {
namespace {

using ::testing::HasSubstr;

constexpr char kLlama3[] = "tests/datasets/tokenizers/testdata/llama3";

std::string NewFolder() {
  static int count = 0;
  const std::string folder =
      absl::StrCat(testing::TempDir(), "/tokenize", ++count);
  mkdir(folder.c_str(), 0700);
  return folder;
}

std::string Write(const std::string& name, const std::string& contents) {
  const std::string path = NewFolder() + "/" + name;
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

std::vector<uint32_t> TokensIn(const std::string& path) {
  const auto file = TokenFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  std::vector<int64_t> tokens(static_cast<size_t>(file->size()));
  EXPECT_TRUE(
      file->Read(0, file->usual_vocabulary(), absl::MakeSpan(tokens)).ok());
  return {tokens.begin(), tokens.end()};
}

// The text of a side, by the tokenizer beside it.
std::string TextIn(const std::string& folder, const std::string& name) {
  const auto tokenizer = OpenTokenizer(folder);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return (*tokenizer)->Decode(TokensIn(folder + "/" + name));
}

absl::StatusOr<TokenizeResult> Made(const TokenizeOptions& options) {
  return Tokenize(options, [](const TokenizeProgress&) {});
}

std::string ErrorOf(const TokenizeOptions& options) {
  const auto result = Made(options);
  EXPECT_FALSE(result.ok());
  return std::string(result.status().message());
}

std::string Lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, "line ", i, "\n");
  return text;
}

std::string Documents(int from, int to) {
  std::string lines;
  for (int i = from; i < to; ++i) {
    absl::StrAppend(&lines, "{\"text\": \"document ", i, "\"}\n");
  }
  return lines;
}

TEST(TokenizeTest, OfATextTheEndIsHeldOut) {
  const std::string text = Lines(1000);
  TokenizeOptions options = {"bytes", Write("a.txt", text), NewFolder()};
  const auto result = Made(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->vocabulary, 257);
  const std::string train = TextIn(options.output, "train.bin");
  const std::string held_out = TextIn(options.output, "val.bin");
  EXPECT_EQ(train + held_out, text);
  EXPECT_NEAR(static_cast<double>(held_out.size()) / text.size(), 0.1, 0.01);
  EXPECT_EQ(held_out.substr(0, 5), "line ");
  EXPECT_EQ(TokensIn(options.output + "/val.bin").back(), 256);
  EXPECT_EQ(result->validation_documents, 1);
}

TEST(TokenizeTest, WithoutMarksBytesAre256Tokens) {
  TokenizeOptions options = {"bytes", Write("a.txt", Lines(100)), NewFolder()};
  options.end_of_text = false;
  const auto result = Made(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->vocabulary, 256);
  EXPECT_EQ(result->train_tokens + result->validation_tokens, 790);
}

TEST(TokenizeTest, DocumentsAreHeldOutWhateverElseThereIs) {
  TokenizeOptions options = {"bytes", Write("a.jsonl", Documents(0, 1000)),
                             NewFolder()};
  const auto all = Made(options);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->train_documents + all->validation_documents, 1000);
  EXPECT_NEAR(static_cast<double>(all->validation_documents), 100, 30);
  const std::string held_out = TextIn(options.output, "val.bin");
  options.input = Write("b.jsonl", Documents(500, 1000));
  options.output = NewFolder();
  ASSERT_TRUE(Made(options).ok());
  const std::string later = TextIn(options.output, "val.bin");
  EXPECT_FALSE(later.empty());
  EXPECT_THAT(held_out, testing::EndsWith(later));
}

TEST(TokenizeTest, DocumentsStandBetweenTheTokenizersMarks) {
  TokenizeOptions options = {
      kLlama3,
      Write("a.jsonl", "{\"text\": \"Hi<|eot_id|>\"}\n" + Documents(0, 1)),
      NewFolder()};
  options.validation_fraction = 0;
  const auto result = Made(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->validation_tokens, 0);
  EXPECT_EQ(TextIn(options.output, "train.bin"),
            "<|begin_of_text|>Hi<|eot_id|><|end_of_text|>"
            "<|begin_of_text|>document 0<|end_of_text|>");
  EXPECT_THAT(TokensIn(options.output + "/train.bin"),
              testing::Not(testing::Contains(1002)));  // eot_id, ordinary text
  options.special_tokens = true;
  ASSERT_TRUE(Made(options).ok());
  EXPECT_THAT(TokensIn(options.output + "/train.bin"),
              testing::Contains(1002).Times(1));
}

// A sentencepiece model lies beside what it made, under its usual name.
TEST(TokenizeTest, SentencePieceModelsTokenizeTexts) {
  TokenizeOptions options = {
      "tests/datasets/tokenizers/sentence_piece/testdata/bpe.model",
      Write("a.jsonl", "{\"text\": \"All human beings.</s>\"}\n"), NewFolder()};
  options.validation_fraction = 0;
  const auto result = Made(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->vocabulary, 700);
  EXPECT_EQ(TextIn(options.output, "train.bin"), " All human beings.</s>");
  const std::vector<uint32_t> tokens = TokensIn(options.output + "/train.bin");
  EXPECT_EQ(tokens.front(), 1);                        // <s>
  EXPECT_EQ(tokens.back(), 2);                         // </s>
  EXPECT_THAT(tokens, testing::Contains(2).Times(1));  // the text's is text
}

// More than is read at once.
TEST(TokenizeTest, ALongTextHasTheTokensOfTheWhole) {
  const std::string text = Lines(1200000);
  TokenizeOptions options = {kLlama3, Write("a.txt", text), NewFolder()};
  options.validation_fraction = 0;
  options.end_of_text = false;
  ASSERT_TRUE(Made(options).ok());
  const auto tokenizer = OpenTokenizer(kLlama3);
  ASSERT_TRUE(tokenizer.ok());
  const auto tokens = (*tokenizer)->Encode(text);
  ASSERT_TRUE(tokens.ok());
  EXPECT_TRUE(TokensIn(options.output + "/train.bin") == *tokens);
}

TEST(TokenizeTest, WhatCannotBeDoneIsSaid) {
  const std::string text = Write("a.txt", Lines(10));
  const std::string folder = NewFolder();
  EXPECT_THAT(ErrorOf({"bytes", text, ""}), HasSubstr("--output"));
  EXPECT_THAT(ErrorOf({"bytes", "no/such/text", folder}),
              HasSubstr("no/such/text"));
  EXPECT_THAT(ErrorOf({"no/such", text, folder}), HasSubstr("no/such"));
  EXPECT_THAT(ErrorOf({"bytes", text, folder, "text", 1.0}),
              HasSubstr("--validation_fraction=1"));
  EXPECT_THAT(ErrorOf({"bytes", Write("b.txt", "one line"), folder}),
              HasSubstr("none would be held out"));
  EXPECT_THAT(ErrorOf({"bytes", Write("a.jsonl", ""), folder}),
              HasSubstr("none would be trained on"));
  EXPECT_FALSE(std::ifstream(folder + "/train.bin").good());
  EXPECT_THAT(ErrorOf({kLlama3, text, folder}),
              HasSubstr("has another tokenizer"));
}

}  // namespace
}  // namespace tandem::tokenize_test
