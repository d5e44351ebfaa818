#include "tools/texts/document_reader.h"

#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/texts/text_files.h"

namespace tandem::document_reader_test {
namespace {

using ::testing::ElementsAre;

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
  const auto found = FindTextFiles(path);
  EXPECT_TRUE(found.ok()) << found.status();
  return found->files.front();
}

// Each piece, with a | before a document's first and a / before the first one
// behind the place where it is cut.
std::vector<std::string> Pieces(const TextFile& file,
                                const ReadDocumentsOptions& options,
                                absl::Status* status) {
  std::vector<std::string> pieces;
  bool first = true;
  bool behind = false;
  *status = ReadDocuments(file, options, [&](const DocumentPiece& piece) {
    EXPECT_EQ(piece.first, first);
    first = piece.last;
    pieces.push_back(absl::StrCat(piece.first ? "|" : "",
                                  piece.behind_cut != behind ? "/" : "",
                                  piece.text));
    behind = piece.behind_cut;
    return absl::OkStatus();
  });
  return pieces;
}

std::vector<std::string> PiecesOf(const TextFile& file,
                                  const ReadDocumentsOptions& options = {}) {
  absl::Status status;
  const auto pieces = Pieces(file, options, &status);
  ExpectOk(status);
  return pieces;
}

absl::Status Read(const TextFile& file) {
  absl::Status status;
  Pieces(file, {}, &status);
  return status;
}

TEST(DocumentReaderTest, ATextIsOneDocument) {
  EXPECT_THAT(PiecesOf(FileOf("a.txt", "one\ntwo\n")),
              ElementsAre("|one\ntwo\n"));
  EXPECT_THAT(PiecesOf(FileOf("a.txt", "")), ElementsAre());
}

TEST(DocumentReaderTest, LongTextsComePartByPart) {
  std::string text = "\xEF\xBB\xBF";
  for (int i = 0; i < 400000; ++i) absl::StrAppend(&text, "line ", i, "\r\n");
  const TextFile file = FileOf("a.txt", text);
  std::string read;
  int parts = 0;
  int64_t bytes = 0;
  const absl::Status status =
      ReadDocuments(file, {}, [&](const DocumentPiece& piece) {
        EXPECT_EQ(piece.first, parts++ == 0);
        EXPECT_FALSE(piece.behind_cut);
        absl::StrAppend(&read, piece.text);
        bytes = piece.bytes_read;
        return absl::OkStatus();
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(parts, 3);
  EXPECT_EQ(bytes, file.bytes - 3);
  EXPECT_TRUE(read == text.substr(3));  // without its mark
}

TEST(DocumentReaderTest, ATextIsCutBehindAPlace) {
  ReadDocumentsOptions options;
  options.cut_after = 7;
  for (const auto& [text, before, behind] :
       std::vector<std::array<std::string, 3>>{
           {"ab\ncd\nef\ngh\nij", "ab\ncd\nef\n", "gh\nij"},
           {"ab\r\ncd\r\nef\r\ngh", "ab\r\ncd\r\n", "ef\r\ngh"},
           {"ab\rcd\ref\rgh", "ab\rcd\ref\r", "gh"},
           {"ab\ncd\nef\n gh\nij", "ab\ncd\nef\n gh\n", "ij"},
           {"one two three four", "one two", " three four"},
           {"abcdefghij", "abcdefg", "hij"},
           {"\u4f60\u597d\u4e16\u754c", "\u4f60\u597d\u4e16", "\u754c"},
           {"one line", "one lin", "e"}}) {
    EXPECT_THAT(PiecesOf(FileOf("a.txt", text), options),
                ElementsAre("|" + before, "/" + behind));
  }
  // There is nothing behind it.
  EXPECT_THAT(PiecesOf(FileOf("a.txt", "abcdefg"), options),
              ElementsAre("|abcdefg"));
}

// Beyond what is read at once.
TEST(DocumentReaderTest, ALongTextIsCutOnce) {
  ReadDocumentsOptions options;
  for (const int64_t place : {0, 1000000, 1048576, 2500000}) {
    options.cut_after = place;
    const std::string text(3000000, 'x');
    const auto pieces = PiecesOf(FileOf("a.txt", text), options);
    std::string sides[2];
    int side = 0;
    for (const std::string& piece : pieces) {
      if (piece.find('/') != std::string::npos) side = 1;
      for (const char each : piece) {
        if (each == 'x') sides[side].push_back(each);
      }
    }
    EXPECT_NEAR(static_cast<double>(sides[0].size()),
                static_cast<double>(place), 1);
    EXPECT_GT(sides[0].size(), 0);
    EXPECT_EQ(sides[0].size() + sides[1].size(), text.size());
  }
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
      Read(FileOf("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n")),
      InvalidArgument("line 2: expected a JSON object with a text in 'text'"));
  EXPECT_THAT(Read(FileOf("a.jsonl", "{\"body\": \"a\"}")),
              InvalidArgument("found texts in body"));
  for (const char* const line :
       {"{", "[1]", "3", "null", "{\"text\": \"\xFF\"}"}) {
    EXPECT_THAT(Read(FileOf("a.jsonl", line)), InvalidArgument("line 1"));
  }
}

TEST(DocumentReaderTest, WhatIsNoJsonIsSaidByItsReason) {
  EXPECT_THAT(Read(FileOf("a.jsonl",
                          "{\"text\": \"a\"}\n{\"text\": \"x \\ud83d y\"}\n")),
              InvalidArgument("line 2: ", "a lone surrogate"));
  EXPECT_THAT(Read(FileOf("a.jsonl", "{\"text\": \"a\"} {\"text\": \"b\"}")),
              InvalidArgument("line 1: expected a JSON object, found no JSON: ",
                              "byte 15 has '{', expected end of input"));
  EXPECT_THAT(Read(FileOf("a.jsonl", "{\"text\": \"a")),
              InvalidArgument("found no JSON: it ends too early"));
  // The parser's error of another kind.
  EXPECT_THAT(
      Read(FileOf("a.jsonl", "{\"text\": \"a\", \"n\": 1e999}")),
      InvalidArgument("found no JSON: a number in it is more than a double"));
}

TEST(DocumentReaderTest, WhatIsNoTextIsRefusedByName) {
  const std::string after(100, 'x');
  for (const auto& [beginning, what] :
       std::vector<std::pair<std::string, std::string>>{
           {"\x1f\x8b\x08",
            "is compressed by gzip; unpack it: gunzip; or have its name end "
            "with "
            ".gz"},
           {"\x28\xb5\x2f\xfd", "is compressed by zstd"},
           {std::string("\xfd"
                        "7zXZ\0",
                        6),
            "is compressed by xz"},
           {"BZh91AY&SY", "is compressed by bzip2"},
           {"\x04\x22\x4d\x18", "is compressed by LZ4"},
           {"PK\x03\x04", "is a zip archive"},
           {"PAR1\x15", "is Parquet"},
           {std::string("\xff\xfe"
                        "a\0",
                        4),
            "is in UTF-16"},
           {std::string("ab\0", 3), "has a byte 0, byte 2"}}) {
    for (const std::string name : {"a.txt", "a.jsonl"}) {
      const std::string path = absl::StrCat(NewFolder(), "/", name);
      Write(path, beginning + after);
      EXPECT_THAT(FindTextFiles(path).status(), Says(path, what));
    }
  }
  EXPECT_THAT(PiecesOf(FileOf("a.txt", "BZhang PK PAR1")),
              ElementsAre("|BZhang PK PAR1"));
}

TEST(TextFilesTest, OfAFolderThoseOfTextByName) {
  const std::string folder = NewFolder();
  mkdir((folder + "/b").c_str(), 0700);
  for (const char* const name :
       {"/c.TXT", "/b/d.jsonl", "/a.md", "/e.png", "/f.png", "/.txt"}) {
    Write(folder + name, "text");
  }
  ASSERT_EQ(symlink("b", (folder + "/again").c_str()), 0);
  const auto found = FindTextFiles(folder);
  ASSERT_TRUE(found.ok()) << found.status();
  const std::vector<TextFile>& files = found->files;
  ASSERT_EQ(files.size(), 3);
  EXPECT_EQ(files[0].path, folder + "/a.md");
  EXPECT_EQ(files[1].path, folder + "/b/d.jsonl");
  EXPECT_TRUE(files[1].json_lines);
  EXPECT_EQ(files[2].path, folder + "/c.TXT");
  EXPECT_EQ(files[2].bytes, 4);
  EXPECT_EQ(DescribeLeftOut(*found),
            "2 .png, 1 linked folder(s), 1 without an ending");
}

// What //tools:tokenize has written is none, whatever its folder is called.
TEST(TextFilesTest, FilesOfTokenizersAreNoTexts) {
  const std::string folder = NewFolder();
  mkdir((folder + "/gpt2").c_str(), 0700);
  mkdir((folder + "/bytes").c_str(), 0700);
  Write(folder + "/gpt2/vocab.json", "{}");
  Write(folder + "/gpt2/merges.txt", "a b\n");
  Write(folder + "/bytes/tokenizer.txt", "bytes\n");
  // Texts that are only called so.
  Write(folder + "/merges.txt", "Of merges.\n");
  Write(folder + "/tokenizer.txt", "Of tokenizers.\n");
  const auto found = FindTextFiles(folder);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->files.size(), 2);
  EXPECT_EQ(found->files[0].path, folder + "/merges.txt");
  EXPECT_EQ(found->files[1].path, folder + "/tokenizer.txt");
  EXPECT_EQ(DescribeLeftOut(*found), "2 of a tokenizer, 1 .json");
}

TEST(TextFilesTest, OfManyKindsTheMostFrequentAreNamed) {
  TextFiles found;
  found.left_out = {{".a", 1}, {".b", 9}, {".c", 1}, {".d", 1},
                    {".e", 1}, {".f", 1}, {".g", 1}, {".h", 1}};
  EXPECT_EQ(DescribeLeftOut(found),
            "9 .b, 1 .a, 1 .c, 1 .d, 1 .e, 1 .f, 2 of other kinds");
  EXPECT_EQ(DescribeLeftOut({}), "");
}

TEST(TextFilesTest, WhatIsNoTextIsSaid) {
  EXPECT_EQ(FindTextFiles("no/such/file").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(FindTextFiles("/dev/null").status().code(),
            absl::StatusCode::kInvalidArgument);
  const std::string folder = NewFolder();
  EXPECT_EQ(FindTextFiles(folder).status().code(),
            absl::StatusCode::kInvalidArgument);
  Write(folder + "/pages.jsonl.xz", "x");
  EXPECT_THAT(FindTextFiles(folder).status(), Says("it has others: 1 .xz"));
  Write(folder + "/pages.json", "{}\n{}\n");
  EXPECT_THAT(FindTextFiles(folder + "/pages.json").status(),
              Says("pages.json is JSON by its name"));
}

// Root, who may read everything, may read what it has the right to for a
// moment.
class Nobody {
 public:
  Nobody() {
    syscall(SYS_capget, &header_, before_);
    __user_cap_data_struct now[2] = {before_[0], before_[1]};
    now[0].effective &= ~(1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH);
    syscall(SYS_capset, &header_, now);
  }
  ~Nobody() { syscall(SYS_capset, &header_, before_); }

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2] = {};
};

TEST(TextFilesTest, AFolderThatCannotBeReadIsNamed) {
  char folder[] = "/tmp/textsXXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  ASSERT_EQ(chmod(folder, 0755), 0);
  const std::string path = folder;
  Write(path + "/a.txt", "text");
  for (const char* const name : {"/lost+found", "/mine"}) {
    ASSERT_EQ(mkdir((path + name).c_str(), 0), 0);
    absl::StatusOr<TextFiles> found = TextFiles();
    {
      const Nobody nobody;
      found = FindTextFiles(path);
    }
    if (name == std::string("/mine")) {
      EXPECT_THAT(found.status(), StatusIs(absl::StatusCode::kPermissionDenied,
                                           "cannot read " + path + "/mine"));
    } else {  // which file systems make, for root alone
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->files.size(), 1);
    }
    ASSERT_EQ(rmdir((path + name).c_str()), 0);
  }
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace tandem::document_reader_test
