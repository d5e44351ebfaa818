#include "datasets/tokens/token_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::token_file_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::string Bytes(const std::vector<T>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()),
                     numbers.size() * sizeof(T));
}

// llm.c's.
std::string Header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = count;
  return Bytes(words);
}

std::string Write(const std::string& bytes) {
  const std::string path = testing::TempDir() + "/tokens.bin";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

std::vector<int64_t> AllOf(const TokenFile& file) {
  std::vector<int64_t> tokens(static_cast<size_t>(file.size()));
  EXPECT_TRUE(file.Read(0, int64_t{1} << 32, absl::MakeSpan(tokens)).ok());
  return tokens;
}

std::string ErrorOf(const std::string& bytes) {
  const absl::Status status = TokenFile::Open(Write(bytes)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  return std::string(status.message());
}

TEST(TokenFileTest, ReadsNanoGptsNumbers) {
  const auto file =
      TokenFile::Open(Write(Bytes<uint16_t>({0, 1, 255, 256, 50256, 65535})));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 6);
  EXPECT_EQ(file->usual_vocabulary(), 50257);
  EXPECT_THAT(AllOf(*file), ElementsAre(0, 1, 255, 256, 50256, 65535));
  std::vector<int64_t> two(2);
  ASSERT_TRUE(file->Read(3, 50257, absl::MakeSpan(two)).ok());
  EXPECT_THAT(two, ElementsAre(256, 50256));
  ASSERT_TRUE(file->Read(6, 50257, {}).ok());
}

// The first numbers of a file may be anything but a header's.
TEST(TokenFileTest, AFileWithoutAnythingHasNoTokens) {
  for (const int count : {0, 1, 5}) {
    const auto file =
        TokenFile::Open(Write(Bytes(std::vector<uint16_t>(count, 7))));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->size(), count);
  }
}

TEST(TokenFileTest, ReadsLlmCsFormats) {
  const auto gpt2 = TokenFile::Open(
      Write(Header(20240520, 1, 3) + Bytes<uint16_t>({50256, 0, 7})));
  ASSERT_TRUE(gpt2.ok()) << gpt2.status();
  EXPECT_THAT(AllOf(*gpt2), ElementsAre(50256, 0, 7));
  EXPECT_EQ(gpt2->usual_vocabulary(), 50257);
  const auto llama = TokenFile::Open(
      Write(Header(20240801, 7, 2) + Bytes<uint32_t>({128000, 4294967295u})));
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_THAT(AllOf(*llama), ElementsAre(128000, 4294967295));
  EXPECT_EQ(llama->usual_vocabulary(), 128256);
}

TEST(TokenFileTest, DamageIsToldByWhatWasFoundAndExpected) {
  EXPECT_THAT(ErrorOf("abc"), HasSubstr("3 bytes, which is half a token"));
  EXPECT_THAT(ErrorOf(Header(20240520, 2, 1) + Bytes<uint16_t>({1})),
              HasSubstr("version 2 of llm.c's token files (20240520), "
                        "expected 1"));
  const std::string three = Header(20240520, 1, 3);
  EXPECT_THAT(ErrorOf(three + Bytes<uint16_t>({1, 2})),
              HasSubstr("says 3 tokens of 2 bytes, which is a file of 1030 "
                        "bytes, but it has 1028"));
  EXPECT_THAT(ErrorOf(three + Bytes<uint16_t>({1, 2, 3, 4})),
              HasSubstr("but it has 1032"));
  EXPECT_THAT(ErrorOf(three.substr(0, 100)), HasSubstr("but it has 100"));
  EXPECT_THAT(ErrorOf(Header(20240520, 1, -1)),
              HasSubstr("says 4294967295 tokens"));
}

TEST(TokenFileTest, ANumberOutsideOfTheVocabularyHasAPlace) {
  const auto file = TokenFile::Open(Write(Bytes<uint16_t>({3, 65, 64, 9})));
  ASSERT_TRUE(file.ok());
  std::vector<int64_t> tokens(3);
  const absl::Status status = file->Read(1, 65, absl::MakeSpan(tokens));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("token 1 is 65"),
                             HasSubstr("the vocabulary has 65")));
  EXPECT_TRUE(file->Read(2, 65, absl::MakeSpan(tokens).subspan(0, 2)).ok());
}

TEST(TokenFileTest, WhatIsNoFileIsRefused) {
  const std::string folder = testing::TempDir();
  EXPECT_EQ(TokenFile::Open(folder + "/none.bin").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(TokenFile::Open(folder).status().message()),
              HasSubstr("no regular file"));
  const std::string pipe = folder + "/pipe.bin";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(std::string(TokenFile::Open(pipe).status().message()),
              HasSubstr("no regular file"));
}

TEST(TokenFileTest, AFileThatShrinksIsAnError) {
  const std::string path = Write(Bytes(std::vector<uint16_t>(1000, 5)));
  const auto file = TokenFile::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), 100), 0);
  std::vector<int64_t> tokens(100);
  const absl::Status status = file->Read(0, 10, absl::MakeSpan(tokens));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("became shorter"));
}

}  // namespace
}  // namespace tandem::token_file_test
