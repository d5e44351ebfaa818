#include "tools/texts/document_reader.h"

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/texts/text_files.h"

namespace tandem::document_reader_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string NewFolder() {
  static int count = 0;
  const std::string folder = absl::StrCat(testing::TempDir(), "/read", ++count);
  mkdir(folder.c_str(), 0700);
  return folder;
}

void Write(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

TextFile FileOf(const std::string& name, const std::string& contents) {
  const std::string path = NewFolder() + "/" + name;
  Write(path, contents);
  const auto files = FindTextFiles(path);
  EXPECT_TRUE(files.ok()) << files.status();
  return files->front();
}

// Each piece, with a | before a document's first.
std::vector<std::string> Pieces(const TextFile& file,
                                const ReadDocumentsOptions& options,
                                absl::Status* status) {
  std::vector<std::string> pieces;
  bool first = true;
  *status = ReadDocuments(file, options, [&](const DocumentPiece& piece) {
    EXPECT_EQ(piece.first, first);
    first = piece.last;
    pieces.push_back(absl::StrCat(piece.first ? "|" : "", piece.text));
    return absl::OkStatus();
  });
  return pieces;
}

std::vector<std::string> PiecesOf(const TextFile& file,
                                  const ReadDocumentsOptions& options = {}) {
  absl::Status status;
  const auto pieces = Pieces(file, options, &status);
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

std::string ErrorOf(const TextFile& file) {
  absl::Status status;
  Pieces(file, {}, &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(DocumentReaderTest, ATextIsOneDocument) {
  EXPECT_THAT(PiecesOf(FileOf("a.txt", "one\ntwo\n")),
              ElementsAre("|one\ntwo\n"));
  EXPECT_THAT(PiecesOf(FileOf("a.txt", "")), ElementsAre());
}

TEST(DocumentReaderTest, LongTextsAreCutBetweenLines) {
  ReadDocumentsOptions options;
  options.piece_bytes = 3;
  EXPECT_THAT(
      PiecesOf(FileOf("a.txt", "ab\ncd\nef\n\ngh\n ij \nkl\nmn\n"), options),
      ElementsAre("|ab\ncd\n", "ef\n\ngh\n ij \nkl\n", "mn\n"));
  EXPECT_THAT(PiecesOf(FileOf("a.txt", "abcdefgh"), options),
              ElementsAre("|abcdefgh"));
}

TEST(DocumentReaderTest, ATextIsCutAtAPlace) {
  ReadDocumentsOptions options;
  options.cut_after = 7;
  EXPECT_THAT(PiecesOf(FileOf("a.txt", "ab\ncd\nef\ngh\nij"), options),
              ElementsAre("|ab\ncd\nef\n", "gh\nij"));
}

TEST(DocumentReaderTest, LinesOfJsonAreDocuments) {
  ReadDocumentsOptions options;
  options.column = "body";
  EXPECT_THAT(PiecesOf(FileOf("a.jsonl",
                              "{\"body\": \"one\\ntwo\", \"id\": 1}\n\n"
                              "{\"body\": \"\"}\r\n{\"body\": \"\\u00e9\"}"),
                       options),
              ElementsAre("|one\ntwo", "|\xC3\xA9"));
}

TEST(DocumentReaderTest, WrongLinesAreSaid) {
  EXPECT_THAT(
      ErrorOf(FileOf("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n")),
      HasSubstr("line 2: expected a JSON object with a text in 'text'"));
  EXPECT_THAT(ErrorOf(FileOf("a.jsonl", "{\"body\": \"a\"}")),
              HasSubstr("found texts in body"));
  for (const char* const line :
       {"{", "[1]", "3", "null", "{\"text\": \"\xFF\"}"}) {
    EXPECT_THAT(ErrorOf(FileOf("a.jsonl", line)), HasSubstr("line 1"));
  }
}

TEST(TextFilesTest, OfAFolderThoseOfTextByName) {
  const std::string folder = NewFolder();
  mkdir((folder + "/b").c_str(), 0700);
  for (const char* const name :
       {"/c.txt", "/b/d.jsonl", "/a.md", "/e.png", "/.txt"}) {
    Write(folder + name, "text");
  }
  const auto files = FindTextFiles(folder);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 3);
  EXPECT_EQ((*files)[0].path, folder + "/a.md");
  EXPECT_EQ((*files)[1].path, folder + "/b/d.jsonl");
  EXPECT_TRUE((*files)[1].json_lines);
  EXPECT_EQ((*files)[2].path, folder + "/c.txt");
  EXPECT_EQ((*files)[2].bytes, 4);
}

TEST(TextFilesTest, WhatIsNoTextIsSaid) {
  EXPECT_EQ(FindTextFiles("no/such/file").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(FindTextFiles(NewFolder()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FindTextFiles("/dev/null").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::document_reader_test
