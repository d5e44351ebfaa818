#include "datasets/tokens/token_writer.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/testing/statuses.h"
#include "datasets/tokens/documents.h"
#include "datasets/tokens/token_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::token_writer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Path() { return testing::TempDir() + "/written.bin"; }

// Documents of 3, 0 and 2 tokens.
void Write(int64_t vocabulary) {
  auto writer = TokenWriter::Create(Path(), vocabulary, 7);
  ASSERT_TRUE(writer.ok()) << writer.status();
  writer->BeginDocument();
  ASSERT_TRUE(writer->Append({1, 2}).ok());
  ASSERT_TRUE(writer->Append({static_cast<uint32_t>(vocabulary) - 1}).ok());
  writer->BeginDocument();
  writer->BeginDocument();
  ASSERT_TRUE(writer->Append({4, 7}).ok());
  EXPECT_EQ(writer->tokens(), 5);
  EXPECT_EQ(writer->documents(), 3);
  const absl::Status status = writer->Commit();
  ASSERT_TRUE(status.ok()) << status;
}

std::string Contents() {
  std::ifstream file(Path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string ErrorText(const std::string& contents) {
  std::ofstream(Path(), std::ios::binary | std::ios::trunc) << contents;
  const absl::Status status = TokenFile::Open(Path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  return std::string(status.message());
}

std::string Changed(std::string contents, size_t place, uint64_t number) {
  std::memcpy(&contents[place], &number, sizeof(number));
  return contents;
}

class TokenWriterTest : public testing::TestWithParam<int64_t> {};

TEST_P(TokenWriterTest, WhatIsWrittenIsRead) {
  Write(GetParam());
  const auto file = TokenFile::Open(Path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 5);
  EXPECT_EQ(file->usual_vocabulary(), GetParam());
  std::vector<int64_t> tokens(5);
  ASSERT_TRUE(file->Read(0, GetParam(), absl::MakeSpan(tokens)).ok());
  EXPECT_THAT(tokens, ElementsAre(1, 2, GetParam() - 1, 4, 7));
  ASSERT_EQ(file->documents(), 3);
  std::vector<int64_t> begins(3);
  ASSERT_TRUE(file->ReadDocuments(0, absl::MakeSpan(begins)).ok());
  EXPECT_THAT(begins, ElementsAre(0, 3, 3));
  begins.resize(1);
  ASSERT_TRUE(file->ReadDocuments(2, absl::MakeSpan(begins)).ok());
  EXPECT_THAT(begins, ElementsAre(3));
}

// With 2 and with 4 bytes a token.
INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenWriterTest,
                         testing::Values(257, 65536, 65537, 128256));

TEST(TokenFormatTest, BytesLieWhereThePageSays) {
  Write(257);
  const std::string contents = Contents();
  ASSERT_EQ(contents.size(), 64 + 16 + 3 * 8);  // tokens: 10 bytes, filled up
  EXPECT_EQ(contents.substr(0, 8), "TANDEMTK");
  EXPECT_EQ(contents.substr(8, 8), std::string("\1\0\0\0\2\0\0\0", 8));
  EXPECT_EQ(contents.substr(64, 6), std::string("\1\0\2\0\0\1", 6));
}

TEST(TokenFormatTest, WhatDoesNotFitIsAnError) {
  Write(257);
  const std::string contents = Contents();
  EXPECT_THAT(ErrorText(contents.substr(0, 40)), HasSubstr("40 bytes, fewer"));
  EXPECT_THAT(ErrorText(contents + "x"), HasSubstr("make it again"));
  EXPECT_THAT(ErrorText(contents.substr(0, contents.size() - 1)),
              HasSubstr("5 tokens of 2 bytes and 3 documents"));
  EXPECT_THAT(ErrorText(Changed(contents, 8, uint64_t{2} << 32 | 9)),
              HasSubstr("version 9"));
  EXPECT_THAT(ErrorText(Changed(contents, 8, uint64_t{3} << 32 | 1)),
              HasSubstr("makes no sense"));
  EXPECT_THAT(ErrorText(Changed(contents, 16, 0)), HasSubstr("makes no sense"));
  EXPECT_THAT(ErrorText(Changed(contents, 24, ~uint64_t{0})),
              HasSubstr("makes no sense"));
  EXPECT_THAT(ErrorText(Changed(contents, 40, 257)),
              HasSubstr("makes no sense"));
}

TEST(TokenFormatTest, DocumentsThatOverlapAreAnError) {
  Write(257);
  const std::string contents = Contents();
  for (const uint64_t place : {uint64_t{6}, uint64_t{2}, ~uint64_t{0}}) {
    std::ofstream(Path(), std::ios::binary | std::ios::trunc)
        << Changed(contents, contents.size() - 8, place);
    const auto file = TokenFile::Open(Path());
    ASSERT_TRUE(file.ok()) << file.status();
    std::vector<int64_t> begins(3);
    EXPECT_EQ(file->ReadDocuments(0, absl::MakeSpan(begins)).code(),
              absl::StatusCode::kDataLoss);
  }
}

// In tandem's format, with documents of these lengths.
TokenFile ListedFile(const std::vector<int>& lengths) {
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
  const TokenFile file = ListedFile({3, 0, 2, 1, 4});
  EXPECT_THAT(Within(file, 0, 10), ElementsAre(3, 5, 6));
  EXPECT_THAT(Within(file, 0, 3), ElementsAre(3));
  EXPECT_THAT(Within(file, 0, 2), IsEmpty());
  // One that begins with the stretch is none that begins within it.
  EXPECT_THAT(Within(file, 3, 3), ElementsAre(2, 3));
  EXPECT_THAT(Within(file, 6, 3), IsEmpty());
}

// More than are read at a time.
TEST(DocumentsTest, ManyShortOnes) {
  const TokenFile file = ListedFile(std::vector<int>(1000, 2));
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
  const TokenFile listed = ListedFile({3});
  EXPECT_TRUE(CheckDocumentEnds(listed, {}, 256).ok());
  EXPECT_THAT(CheckDocumentEnds(listed, {7}, 256),
              Says("lists its 1 documents, so leave the end_of_text 7"));
  const std::string path = testing::TempDir() + "/bare.bin";
  std::ofstream(path, std::ios::binary) << "abcd";
  const TokenFile bare = *TokenFile::Open(path);
  EXPECT_THAT(CheckDocumentEnds(bare, {}, 256),
              Says("does not say where its documents begin"));
  EXPECT_THAT(CheckDocumentEnds(bare, {256}, 256),
              Says("end_of_text 256 is none of the 256 tokens"));
}

}  // namespace
}  // namespace tandem::token_writer_test
