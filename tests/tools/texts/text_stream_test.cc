// Packed texts, from what Python's gzip and zstandard have packed, and from
// bytes that are written here.

#include "tools/texts/text_stream.h"

#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/texts/document_reader.h"
#include "tools/texts/text_files.h"
#include "tools/texts/tokenize.h"

namespace tandem::text_stream_test {
namespace {

using ::testing::ElementsAre;

// What make_packed.py has packed.
std::string Lines() {
  std::string text;
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&text, "line ", i, "\n");
  return text;
}

const std::map<std::string, std::string>& Packed() {
  static const auto* const packed = [] {
    auto* const read = new std::map<std::string, std::string>;
    std::ifstream file("tests/tools/texts/packed.json");
    const auto json = nlohmann::json::parse(file);
    for (const auto& [name, value] : json.items()) {
      EXPECT_TRUE(absl::Base64Unescape(std::string(value), &(*read)[name]));
    }
    return read;
  }();
  return *packed;
}

std::string Write(const std::string& name, const std::string& bytes) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

absl::StatusOr<std::string> Unpacked(const std::string& bytes, Packing packing,
                                     size_t at_once = 1 << 20) {
  const auto stream = TextStream::Open(Write("packed", bytes), packing);
  if (!stream.ok()) return stream.status();
  std::string text;
  std::vector<char> block(at_once);
  for (;;) {
    const auto size = (*stream)->Read(block.data(), block.size());
    if (!size.ok()) return size.status();
    text.append(block.data(), *size);
    if (*size < block.size()) break;
  }
  EXPECT_EQ((*stream)->bytes_read(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(*(*stream)->Read(block.data(), block.size()), 0u);
  return text;
}

// By zlib's other half.
std::string Gzip(const std::string& text) {
  z_stream zlib = {};
  EXPECT_EQ(
      deflateInit2(&zlib, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
      Z_OK);
  std::string packed(deflateBound(&zlib, text.size()) + 64, '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zlib.avail_in = static_cast<uInt>(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(packed.data());
  zlib.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&zlib, Z_FINISH), Z_STREAM_END);
  packed.resize(zlib.total_out);
  deflateEnd(&zlib);
  return packed;
}

std::string LittleEndian(uint32_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    text.push_back(static_cast<char>(number >> (8 * i)));
  }
  return text;
}

// A zstd frame by the format's own words (RFC 8878): of a window of 1 MiB, with
// a raw block of `text`, and `blocks` more, each of which says that a byte is
// there 131072 times.
std::string ZstdFrame(const std::string& text, char byte, int blocks) {
  std::string frame("\x28\xb5\x2f\xfd\x00\x50", 6);
  frame += LittleEndian(static_cast<uint32_t>(text.size() << 3), 3) + text;
  for (int i = 0; i < blocks; ++i) {
    const uint32_t last = i + 1 == blocks ? 1 : 0;
    frame += LittleEndian(131072u << 3 | 1u << 1 | last, 3) + byte;
  }
  return frame;
}

TEST(TextStreamTest, UnpacksWhatOthersPack) {
  for (const auto& [name, file] : Packed()) {
    if (name == "zstd_256_mib") continue;
    const Packing packing =
        name.substr(0, 4) == "gzip" ? Packing::kGzip : Packing::kZstd;
    for (const size_t at_once : {size_t{1} << 20, size_t{97}}) {
      const auto text = Unpacked(file, packing, at_once);
      ASSERT_TRUE(text.ok()) << name << ": " << text.status();
      EXPECT_TRUE(*text == Lines()) << name;
    }
  }
  EXPECT_EQ(*Unpacked(Lines(), Packing::kNone), Lines());
}

TEST(TextStreamTest, TruncatedFilesAreErrors) {
  for (const auto& [name, file] : Packed()) {
    const Packing packing =
        name.substr(0, 4) == "gzip" ? Packing::kGzip : Packing::kZstd;
    // Between two members or frames nobody can tell.
    if (name == "gzip_members" || name == "zstd_frames" ||
        name == "zstd_256_mib") {
      continue;
    }
    for (size_t size = 0; size < file.size(); size += 1 + size / 9) {
      EXPECT_THAT(Unpacked(file.substr(0, size), packing).status(),
                  StatusIs(absl::StatusCode::kDataLoss, "packed", "truncated"))
          << name << ", " << size;
    }
    EXPECT_THAT(Unpacked(file.substr(0, file.size() - 1), packing).status(),
                StatusIs(absl::StatusCode::kDataLoss, "truncated"))
        << name;
  }
}

TEST(TextStreamTest, DamagedFilesAreErrors) {
  for (const std::string name : {"gzip", "zstd_checked"}) {
    std::string file = Packed().at(name);
    const Packing packing = name == "gzip" ? Packing::kGzip : Packing::kZstd;
    file[file.size() - 5] ^= 1;  // of a checksum, or of what it is of
    EXPECT_THAT(Unpacked(file, packing).status(),
                StatusIs(absl::StatusCode::kDataLoss, "damaged"));
    EXPECT_THAT(Unpacked("no packed file", packing).status(),
                StatusIs(absl::StatusCode::kDataLoss, "damaged"));
    EXPECT_THAT(Unpacked(Packed().at(name) + "more", packing).status(),
                StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  }
}

TEST(TextStreamTest, ZerosBehindGzipDataArePadding) {
  const std::string& file = Packed().at("gzip");
  EXPECT_EQ(*Unpacked(file + std::string(512, '\0'), Packing::kGzip), Lines());
  EXPECT_EQ(*Unpacked(file + std::string(3, '\0') + file, Packing::kGzip),
            Lines() + Lines());
}

TEST(TextStreamTest, RefusesWhatNeedsMuchMemory) {
  EXPECT_THAT(Unpacked(Packed().at("zstd_256_mib"), Packing::kZstd).status(),
              InvalidArgument("more than 128 MiB", "--long"));
}

TEST(TextStreamTest, UnpacksMoreThanItHoldsAtOnce) {
  std::string text;
  for (int i = 0; text.size() < 3 << 20; ++i) absl::StrAppend(&text, i, "\n");
  EXPECT_TRUE(*Unpacked(Gzip(text), Packing::kGzip) == text);
  EXPECT_TRUE(*Unpacked(Gzip(text), Packing::kGzip, 1000) == text);
}

TEST(UnpackedBytesTest, CountsAGibibyteOfAFewBytes) {
  const std::string frame = ZstdFrame("head", 'x', 8192);
  EXPECT_EQ(*UnpackedBytes(Write("bomb.zst", frame), Packing::kZstd),
            (int64_t{1} << 30) + 4);
}

absl::StatusOr<std::vector<std::string>> Documents(const std::string& path,
                                                   int64_t* bytes_read) {
  const auto found = FindTextFiles(path);
  if (!found.ok()) return found.status();
  std::vector<std::string> documents;
  const absl::Status status =
      ReadDocuments(found->files.front(), {}, [&](const DocumentPiece& piece) {
        if (piece.first) documents.emplace_back();
        documents.back().append(piece.text.data(), piece.text.size());
        *bytes_read = piece.bytes_read;
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return documents;
}

TEST(PackedDocumentsTest, AreThoseOfTheUnpackedFile) {
  const std::string lines = "{\"text\": \"one\"}\n\n{\"text\": \"two\"}";
  int64_t bytes_read = 0;
  auto found = Documents(Write("pages.jsonl.gz", Gzip(lines)), &bytes_read);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, ElementsAre("one", "two"));
  EXPECT_EQ(bytes_read, static_cast<int64_t>(Gzip(lines).size()));
  const std::string whole_lines = ZstdFrame(lines, '\n', 1);
  found = Documents(Write("pages.JSONL.ZST", whole_lines), &bytes_read);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, ElementsAre("one", "two"));
  found = Documents(Write("book.txt.gz", Gzip(lines)), &bytes_read);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, ElementsAre(lines));
}

TEST(PackedDocumentsTest, ALineThatIsTooLongIsRefusedBeforeItIsInMemory) {
  int64_t bytes_read = 0;
  const std::string path =
      Write("bomb.jsonl.zst", ZstdFrame("{\"text\": \"", 'x', 8192));
  EXPECT_THAT(Documents(path, &bytes_read).status(),
              InvalidArgument("bomb.jsonl.zst, line 1", "256 MiB"));
}

TEST(PackedDocumentsTest, AFolderHasPackedFilesToo) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/packed_folder");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const char* name : {"a.txt.gz", "b.jsonl.zst", "c.MD.GZ", "d.tar.gz",
                           "e.gz", "f.txt", "g.txt.xz"}) {
    Write(absl::StrCat("packed_folder/", name),
          absl::StrContains(name, ".zst")
              ? ZstdFrame("{\"text\": \"b\"}", ' ', 1)
          : absl::EndsWithIgnoreCase(name, ".gz") ? Gzip("text")
                                                  : "text");
  }
  const auto found = FindTextFiles(folder);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<std::string> names;
  for (const TextFile& file : found->files) {
    names.push_back(std::filesystem::path(file.path).filename());
  }
  EXPECT_THAT(names,
              ElementsAre("a.txt.gz", "b.jsonl.zst", "c.MD.GZ", "f.txt"));
  EXPECT_TRUE(found->files[1].json_lines);
  EXPECT_EQ(DescribeLeftOut(*found), "2 .gz, 1 .xz");
}

TEST(PackedDocumentsTest, WhatIsPackedInIsText) {
  EXPECT_THAT(FindTextFiles(Write("a.txt.gz", Gzip("a\0b" + std::string(2, 0))))
                  .status(),
              InvalidArgument("a.txt.gz", "byte 0"));
  EXPECT_THAT(FindTextFiles(Write("b.txt.gz", "no gzip")).status(),
              StatusIs(absl::StatusCode::kDataLoss, "b.txt.gz", "damaged"));
  EXPECT_THAT(FindTextFiles(Write("c.json.gz", Gzip("{}"))).status(),
              InvalidArgument("JSON by its name"));
}

TEST(TokenizePackedTest, HoldsOutTheSameAsOfTheUnpackedText) {
  const auto tokenized = [](const std::string& input,
                            const std::string& output) {
    TokenizeOptions options;
    options.tokenizer = "bytes";
    options.input = input;
    options.output = absl::StrCat(testing::TempDir(), "/", output);
    const auto result = Tokenize(options, [](const TokenizeProgress&) {});
    EXPECT_TRUE(result.ok()) << result.status();
    std::string files;
    for (const char* name : {"/train.bin", "/val.bin"}) {
      std::ifstream file(options.output + name, std::ios::binary);
      files.append(std::istreambuf_iterator<char>(file), {});
    }
    return files;
  };
  const std::string plain = tokenized(Write("plain.txt", Lines()), "plain");
  EXPECT_GT(plain.size(), 2 * Lines().size());
  for (const std::string name : {"gzip", "zstd_checked"}) {
    const std::string end = name == "gzip" ? ".txt.gz" : ".txt.zst";
    EXPECT_TRUE(tokenized(Write(name + end, Packed().at(name)), name) == plain)
        << name;
  }
}

TEST(TokenizePackedTest, ATruncatedFileLeavesNothing) {
  TokenizeOptions options;
  options.tokenizer = "bytes";
  // Longer than what is looked at before anything is written.
  std::string text;
  for (int i = 0; text.size() < 3 << 20; ++i) absl::StrAppend(&text, i, "\n");
  const std::string packed = Gzip(text);
  options.input = Write("cut.txt.gz", packed.substr(0, packed.size() - 100));
  options.output = absl::StrCat(testing::TempDir(), "/truncated");
  options.validation_fraction = 0;
  EXPECT_THAT(Tokenize(options, [](const TokenizeProgress&) {}).status(),
              StatusIs(absl::StatusCode::kDataLoss, "cut.txt.gz", "truncated"));
  EXPECT_TRUE(std::filesystem::is_empty(options.output));
}

}  // namespace
}  // namespace tandem::text_stream_test
