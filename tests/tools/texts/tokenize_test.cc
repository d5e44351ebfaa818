#include "tools/texts/tokenize.h"

#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/testing/statuses.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "datasets/tokens/token_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::tokenize_test {
namespace {

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

// Whatever its lines end with, and whatever its script; without a line's end,
// too.
TEST(TokenizeTest, OfAnyTextTheEndIsHeldOut) {
  const auto repeated = [](const std::string& piece) {
    std::string text;
    while (text.size() < 20000) text += piece;
    return text;
  };
  for (const auto& [piece, beginning] :
       std::vector<std::pair<std::string, std::string>>{
           {"It was a truth\r\nuniversally known.\r\n\r\n", ""},
           {"\u4f60\u597d\uff0c\u4e16\u754c\u3002\n", "\u4f60"},
           {"\u0412\u0441\u0435 \u0441\u0447\u0430\u0441\u0442\u044c\u044f.\n",
            "\u0412"},
           {"\u0928\u092e\u0938\u094d\u0924\u0947\n", "\u0928"},
           {"old lines\r", "old"},
           {"words without a line's end ", " "},
           {"\u7d42\u308f\u308a\u306e\u306a\u3044", ""},
           {"0123456789abcdef", ""}}) {
    for (const std::string tokenizer : {"bytes", kLlama3}) {
      SCOPED_TRACE(tokenizer + ": " + piece);
      const std::string text = repeated(piece);
      const TokenizeOptions options = {tokenizer, Write("a.txt", text),
                                       NewFolder()};
      const auto result = Made(options);
      ASSERT_TRUE(result.ok()) << result.status();
      std::string train = TextIn(options.output, "train.bin");
      std::string held_out = TextIn(options.output, "val.bin");
      if (tokenizer != "bytes") {  // the marks around the text
        train = train.substr(std::string("<|begin_of_text|>").size());
        held_out.resize(held_out.size() -
                        std::string("<|end_of_text|>").size());
      }
      EXPECT_TRUE(train + held_out == text);
      EXPECT_NEAR(static_cast<double>(held_out.size()) / text.size(), 0.1,
                  0.01);
      EXPECT_EQ(held_out.substr(0, beginning.size()), beginning);
    }
  }
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
  options.overwrite = true;
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
  std::string text = Lines(600000);
  for (int i = 0; i < 250000; ++i) {
    absl::StrAppend(&text, "\u4f60\u597d ", i, i % 9 == 0 ? "\r\n" : "\uff0c");
  }
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

// Made once more with the same tokenizer, in a folder within the texts'.
TEST(TokenizeTest, WhatItHasWrittenIsNoText) {
  const std::string texts = NewFolder();
  std::ofstream(texts + "/a.txt") << Lines(100);
  std::ofstream(texts + "/b.md") << Lines(90);
  std::ofstream(texts + "/c.csv") << "1,2\n";
  TokenizeOptions options = {"bytes", texts, texts + "/tok"};
  options.validation_fraction = 0;
  const auto first = Made(options);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->left_out, "1 .csv");
  options.overwrite = true;
  const auto second = Made(options);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->train_tokens, first->train_tokens);
  EXPECT_EQ(second->train_documents, 2);
  EXPECT_EQ(second->left_out, "2 .bin, 1 .csv, 1 of a tokenizer");
}

TEST(TokenizeTest, ATokenizerWithoutAnEndOfTextIsSaid) {
  const std::string folder = NewFolder();
  for (const char* const name : {"vocab.json", "merges.txt"}) {
    std::string path =
        absl::StrCat("tests/datasets/tokenizers/testdata/gpt2/", name);
    std::ifstream file(path, std::ios::binary);
    std::string contents((std::istreambuf_iterator<char>(file)), {});
    const size_t mark = contents.find("<|endoftext|>");
    if (mark != std::string::npos) contents.replace(mark, 13, "<|another|>");
    std::ofstream(absl::StrCat(folder, "/", name), std::ios::binary)
        << contents;
  }
  TokenizeOptions options = {folder, Write("a.jsonl", Documents(0, 3)),
                             NewFolder()};
  options.validation_fraction = 0;
  EXPECT_THAT(Made(options).status(),
              Says("has no token that ends a text", "--noend_of_text"));
  std::ofstream(folder + "/tokenizer_config.json")
      << "{\"eos_token\": {\"content\": \"<|another|>\"}}";
  const auto named = Made(options);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(TokensIn(options.output + "/train.bin").back(), 900);
  // The companion is kept, too: the copy is the same tokenizer.
  const auto copy = OpenTokenizer(options.output);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ((*copy)->end_of_text(), 900);
  std::remove((folder + "/tokenizer_config.json").c_str());
  options.output = NewFolder();
  options.end_of_text = false;
  EXPECT_TRUE(Made(options).ok());
}

TEST(TokenizeTest, AColumnIsOfJsonLines) {
  TokenizeOptions options = {"bytes", Write("a.txt", Lines(1000)), NewFolder(),
                             "body"};
  EXPECT_THAT(Made(options).status(),
              Says("--column=body was given, but " + options.input +
                   " has no .jsonl file: leave it out"));
  EXPECT_TRUE(std::filesystem::is_empty(options.output));
  // Beside texts.
  const std::string folder =
      std::filesystem::path(options.input).parent_path().string();
  std::ofstream(folder + "/b.jsonl") << "{\"body\": \"a document\"}\n";
  options.input = folder;
  options.validation_fraction = 0;
  const auto result = Made(options);
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST(TokenizeTest, WhatCannotBeDoneIsSaid) {
  const std::string text = Write("a.txt", Lines(10));
  const std::string folder = NewFolder();
  EXPECT_THAT(Made({"bytes", text, ""}).status(), Says("--output"));
  EXPECT_THAT(Made({"bytes", "no/such/text", folder}).status(),
              Says("no/such/text"));
  EXPECT_THAT(Made({"no/such", text, folder}).status(), Says("no/such"));
  EXPECT_THAT(Made({"bytes", text, folder, "text", 1.0}).status(),
              Says("--validation_fraction=1"));
  EXPECT_THAT(Made({"bytes", Write("b.txt", "1"), folder}).status(),
              Says("none would be held out"));
  EXPECT_THAT(Made({"bytes", Write("a.jsonl", ""), folder}).status(),
              Says("none would be trained on"));
  EXPECT_THAT(Made({"bytes", Write("c.txt", "\x1f\x8b"), folder}).status(),
              Says("unpack it: gunzip"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  ASSERT_TRUE(Made({"bytes", text, folder}).ok());
  EXPECT_THAT(Made({kLlama3, text, folder}).status(),
              Says("has another tokenizer"));
  TokenizeOptions again = {"bytes", Write("d.txt", Lines(20)), folder};
  EXPECT_THAT(
      Made(again).status(),
      Says("--output=" + folder + " has a train.bin already", "--overwrite"));
  EXPECT_EQ(TextIn(folder, "train.bin") + TextIn(folder, "val.bin"), Lines(10));
  again.overwrite = true;
  EXPECT_TRUE(Made(again).ok());
}

}  // namespace
}  // namespace tandem::tokenize_test
