#include "datasets/tokens/token_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/testing/statuses.h"
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

std::vector<int64_t> AllTokens(const TokenFile& file) {
  std::vector<int64_t> tokens(static_cast<size_t>(file.size()));
  EXPECT_TRUE(file.Read(0, int64_t{1} << 32, absl::MakeSpan(tokens)).ok());
  return tokens;
}

std::string ErrorText(const std::string& bytes) {
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
  EXPECT_THAT(AllTokens(*file), ElementsAre(0, 1, 255, 256, 50256, 65535));
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
  EXPECT_THAT(AllTokens(*gpt2), ElementsAre(50256, 0, 7));
  EXPECT_EQ(gpt2->usual_vocabulary(), 50257);
  const auto llama = TokenFile::Open(
      Write(Header(20240801, 7, 2) + Bytes<uint32_t>({128000, 4294967295u})));
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_THAT(AllTokens(*llama), ElementsAre(128000, 4294967295));
  EXPECT_EQ(llama->usual_vocabulary(), 128256);
}

TEST(TokenFileTest, DamageIsToldByWhatWasFoundAndExpected) {
  EXPECT_THAT(ErrorText("abc"), HasSubstr("3 bytes, which is half a token"));
  EXPECT_THAT(ErrorText(Header(20240520, 2, 1) + Bytes<uint16_t>({1})),
              HasSubstr("version 2 of llm.c's token files (20240520), "
                        "expected 1"));
  const std::string three = Header(20240520, 1, 3);
  EXPECT_THAT(ErrorText(three + Bytes<uint16_t>({1, 2})),
              HasSubstr("says 3 tokens of 2 bytes, which is a file of 1030 "
                        "bytes, but it has 1028"));
  EXPECT_THAT(ErrorText(three + Bytes<uint16_t>({1, 2, 3, 4})),
              HasSubstr("but it has 1032"));
  EXPECT_THAT(ErrorText(three.substr(0, 100)), HasSubstr("but it has 100"));
  EXPECT_THAT(ErrorText(Header(20240520, 1, -1)),
              HasSubstr("says 4294967295 tokens"));
}

TEST(TokenFileTest, ANumberOutsideOfTheVocabularyHasAPlace) {
  const auto file = TokenFile::Open(Write(Bytes<uint16_t>({3, 65, 64, 9})));
  ASSERT_TRUE(file.ok());
  std::vector<int64_t> tokens(3);
  const absl::Status status = file->Read(1, 65, absl::MakeSpan(tokens));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "token 1 is 65",
                               "the vocabulary has 65"));
  EXPECT_TRUE(file->Read(2, 65, absl::MakeSpan(tokens).subspan(0, 2)).ok());
}

TEST(TokenFileTest, WhatIsNoFileIsRefused) {
  const std::string folder = testing::TempDir();
  EXPECT_EQ(TokenFile::Open(folder + "/none.bin").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(TokenFile::Open(folder).status(), Says("no regular file"));
  const std::string pipe = folder + "/pipe.bin";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(TokenFile::Open(pipe).status(), Says("no regular file"));
}

TEST(TokenFileTest, AFileThatShrinksIsAnError) {
  const std::string path = Write(Bytes(std::vector<uint16_t>(1000, 5)));
  const auto file = TokenFile::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), 100), 0);
  std::vector<int64_t> tokens(100);
  const absl::Status status = file->Read(0, 10, absl::MakeSpan(tokens));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "became shorter"));
}

std::vector<uint16_t> Halves(const std::vector<uint32_t>& numbers) {
  std::vector<uint16_t> halves(2 * numbers.size());
  std::memcpy(halves.data(), numbers.data(), 4 * numbers.size());
  return halves;
}

// Numbers from `first` on, below `vocabulary`.
std::vector<uint32_t> Numbers(uint32_t first, uint32_t vocabulary,
                              size_t count) {
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i < count; ++i) {
    numbers.push_back(first + i * 7919 % (vocabulary - first));
  }
  return numbers;
}

TEST(NumberWidthTest, HalvesOfWiderNumbersAreSeen) {
  EXPECT_TRUE(AreHalves(Halves(Numbers(0, 50257, 100))));
  EXPECT_TRUE(AreHalves(Halves(Numbers(0, 65, 64))));
  EXPECT_TRUE(AreHalves(Halves(Numbers(0, 128256, 100))));
  EXPECT_TRUE(AreHalves(Halves(Numbers(100000, 128256, 100))));
  EXPECT_FALSE(AreHalves(Halves(Numbers(0, 50257, 63))));  // too few to tell
}

TEST(NumberWidthTest, NumbersOf2BytesAreNone) {
  for (const uint32_t vocabulary : {2u, 4u, 65u, 256u, 50257u}) {
    std::vector<uint16_t> numbers;
    for (const uint32_t each : Numbers(0, vocabulary, 1000)) {
      numbers.push_back(static_cast<uint16_t>(each));
    }
    EXPECT_FALSE(AreHalves(numbers)) << vocabulary;
  }
  EXPECT_FALSE(AreHalves(std::vector<uint16_t>(1000, 0)));
  EXPECT_FALSE(AreHalves(std::vector<uint16_t>(1000, 5)));
  EXPECT_FALSE(AreHalves({}));
}

std::string Write(const std::string& name, const void* data, size_t size) {
  static int count = 0;
  const std::string folder = absl::StrCat(testing::TempDir(), "/w", ++count);
  mkdir(folder.c_str(), 0700);
  std::ofstream(folder + "/" + name, std::ios::binary)
      .write(static_cast<const char*>(data),
             static_cast<std::streamsize>(size));
  return folder + "/" + name;
}

std::vector<int64_t> FirstTokens(const TokenFile& file, size_t count) {
  std::vector<int64_t> tokens(count);
  EXPECT_TRUE(file.Read(0, int64_t{1} << 32, absl::MakeSpan(tokens)).ok());
  return tokens;
}

TEST(NumberWidthTest, AFileOfWideNumbersIsRefusedUnlessItsWidthIsGiven) {
  const std::vector<uint32_t> numbers = Numbers(70000, 128256, 200);
  const std::string path = Write("train.bin", numbers.data(), 800);
  const auto unsaid = TokenFile::Open(path);
  EXPECT_THAT(unsaid.status(), InvalidArgument("give token_bytes 4, or 2"));
  const auto wide = TokenFile::Open(path, 4);
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(wide->size(), 200);
  EXPECT_EQ(wide->usual_vocabulary(), 128256);
  EXPECT_THAT(FirstTokens(*wide, 2), ElementsAre(70000, 77919));
  const auto narrow = TokenFile::Open(path, 2);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ(narrow->size(), 400);
}

// Megatron-LM's.
TEST(NumberWidthTest, AnIndexSaysTheWidth) {
  const std::vector<uint32_t> numbers = {5, 6, 7};
  const std::string path = Write("train.bin", numbers.data(), 12);
  const std::string index = path.substr(0, path.size() - 3) + "idx";
  const auto write_index = [&](char code) {
    std::string bytes("MMIDIDX\0\0", 9);
    bytes += std::string("\1\0\0\0\0\0\0\0", 8) + code + std::string(16, '\0');
    std::ofstream(index, std::ios::binary) << bytes;
  };
  write_index(4);
  const auto wide = TokenFile::Open(path);
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_THAT(FirstTokens(*wide, 3), ElementsAre(5, 6, 7));
  write_index(8);
  EXPECT_EQ(TokenFile::Open(path)->size(), 6);
  write_index(5);
  EXPECT_THAT(TokenFile::Open(path).status(), Says("train.bin are of type 5"));
  std::ofstream(index, std::ios::binary) << "another kind of index";
  EXPECT_EQ(TokenFile::Open(path)->size(), 6);
}

TEST(NumberWidthTest, ADigestTellsFilesApart) {
  std::vector<uint16_t> numbers(20000, 300);
  const auto digest = [&] {
    return *TokenFile::Open(Write("a.bin", numbers.data(), 2 * numbers.size()))
                ->Digest();
  };
  const uint32_t first = digest();
  EXPECT_EQ(digest(), first);
  for (const size_t place : {size_t{7}, size_t{10000}, size_t{19999}}) {
    numbers[place] = 301;
    EXPECT_NE(digest(), first) << place;
    numbers[place] = 300;
  }
  numbers.push_back(300);
  EXPECT_NE(digest(), first);
}

}  // namespace
}  // namespace tandem::token_file_test
