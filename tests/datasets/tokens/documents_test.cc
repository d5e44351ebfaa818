#include "datasets/tokens/documents.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datasets/tokens/token_file.h"
#include "datasets/tokens/token_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::documents_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// In tandem's format, with documents of these lengths.
TokenFile FileOf(const std::vector<int>& lengths) {
  const std::string path = testing::TempDir() + "/listed.bin";
  auto writer = TokenWriter::Create(path, /*vocabulary=*/256, /*end=*/7);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const int length : lengths) {
    writer->BeginDocument();
    const std::vector<uint32_t> tokens(static_cast<size_t>(length), 1);
    EXPECT_TRUE(writer->Append(tokens).ok());
  }
  EXPECT_TRUE(writer->Commit().ok());
  return *TokenFile::Open(path);
}

std::vector<int64_t> Within(const TokenFile& file, int64_t first,
                            int64_t count) {
  const auto places = DocumentsWithin(file, {}, 256, first, count);
  EXPECT_TRUE(places.ok()) << places.status();
  return *places;
}

TEST(DocumentsTest, AListSaysWhereTheyBegin) {
  const TokenFile file = FileOf({3, 0, 2, 1, 4});
  EXPECT_THAT(Within(file, 0, 10), ElementsAre(3, 5, 6));
  EXPECT_THAT(Within(file, 0, 3), ElementsAre(3));
  EXPECT_THAT(Within(file, 0, 2), IsEmpty());
  // One that begins with the stretch is none that begins within it.
  EXPECT_THAT(Within(file, 3, 3), ElementsAre(2, 3));
  EXPECT_THAT(Within(file, 6, 3), IsEmpty());
}

// More than are read at a time.
TEST(DocumentsTest, ManyShortOnes) {
  const TokenFile file = FileOf(std::vector<int>(1000, 2));
  const std::vector<int64_t> places = Within(file, 101, 1700);
  ASSERT_EQ(places.size(), 850u);
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(places[i], static_cast<int64_t>(2 * i + 1));
  }
}

TEST(DocumentsTest, ATokenEndsThem) {
  const std::string path = testing::TempDir() + "/ended.bin";
  const std::vector<uint16_t> tokens = {5, 9, 9, 1, 9, 2};
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()), 12);
  const TokenFile file = *TokenFile::Open(path);
  const DocumentEnds ends = {9};
  EXPECT_TRUE(CheckDocumentEnds(file, ends, 10).ok());
  EXPECT_THAT(*DocumentsWithin(file, ends, 10, 0, 6), ElementsAre(2, 3, 5));
  EXPECT_THAT(*DocumentsWithin(file, ends, 10, 3, 2), ElementsAre(2));
  EXPECT_FALSE(DocumentsWithin(file, ends, 9, 0, 6).ok());
}

TEST(DocumentsTest, WhatIsMissingOrTooMuchIsSaid) {
  const TokenFile listed = FileOf({3});
  EXPECT_TRUE(CheckDocumentEnds(listed, {}, 256).ok());
  EXPECT_THAT(std::string(CheckDocumentEnds(listed, {7}, 256).message()),
              HasSubstr("lists its 1 documents, so leave the end_of_text 7"));
  const std::string path = testing::TempDir() + "/bare.bin";
  std::ofstream(path, std::ios::binary) << "abcd";
  const TokenFile bare = *TokenFile::Open(path);
  EXPECT_THAT(std::string(CheckDocumentEnds(bare, {}, 256).message()),
              HasSubstr("does not say where its documents begin"));
  EXPECT_THAT(std::string(CheckDocumentEnds(bare, {256}, 256).message()),
              HasSubstr("end_of_text 256 is none of the 256 tokens"));
}

}  // namespace
}  // namespace tandem::documents_test
