
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "datasets/tokens/token_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::number_width_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

std::vector<int64_t> FirstOf(const TokenFile& file, size_t count) {
  std::vector<int64_t> tokens(count);
  EXPECT_TRUE(file.Read(0, int64_t{1} << 32, absl::MakeSpan(tokens)).ok());
  return tokens;
}

TEST(NumberWidthTest, AFileOfWideNumbersIsRefusedUnlessItsWidthIsGiven) {
  const std::vector<uint32_t> numbers = Numbers(70000, 128256, 200);
  const std::string path = Write("train.bin", numbers.data(), 800);
  const auto unsaid = TokenFile::Open(path);
  EXPECT_EQ(unsaid.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unsaid.status().message()),
              HasSubstr("give token_bytes 4, or 2"));
  const auto wide = TokenFile::Open(path, 4);
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(wide->size(), 200);
  EXPECT_EQ(wide->usual_vocabulary(), 128256);
  EXPECT_THAT(FirstOf(*wide, 2), ElementsAre(70000, 77919));
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
  EXPECT_THAT(FirstOf(*wide, 3), ElementsAre(5, 6, 7));
  write_index(8);
  EXPECT_EQ(TokenFile::Open(path)->size(), 6);
  write_index(5);
  EXPECT_THAT(std::string(TokenFile::Open(path).status().message()),
              HasSubstr("train.bin are of type 5"));
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
}  // namespace tandem::number_width_test
