#include "core/pytorch_file/zip_directory.h"

#include <caffe2/serialize/inline_container.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::zip_directory_test {
namespace {

using caffe2::serialize::PyTorchStreamWriter;
using testing::HasSubstr;

// By LibTorch's writer, which is torch.save's.
std::string Archive(bool compressed = false) {
  const std::string path = testing::TempDir() + "/archive.pt";
  PyTorchStreamWriter writer(path);
  const std::string values(1000, 'v');
  writer.writeRecord("data.pkl", "abc", 3);
  writer.writeRecord("data/0", values.data(), values.size(), compressed);
  writer.writeEndOfFile();
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

absl::StatusOr<ZipDirectory> Read(const std::string& bytes) {
  const std::string path = testing::TempDir() + "/changed.pt";
  std::ofstream(path, std::ios::binary) << bytes;
  return ReadZipDirectory(*RegularFile::Open(path));
}

std::string ErrorOf(const std::string& bytes) {
  return std::string(Read(bytes).status().message());
}

// With `number` in the place that is `at` bytes behind the last `sign`.
template <typename Number>
std::string With(std::string bytes, const std::string& sign, size_t at,
                 Number number) {
  const size_t place = bytes.rfind(sign);
  EXPECT_NE(place, std::string::npos);
  std::memcpy(&bytes[place + at], &number, sizeof(number));
  return bytes;
}

TEST(ZipDirectoryTest, RecordsAreWhereTheyLie) {
  const std::string bytes = Archive();
  const auto directory = Read(bytes);
  ASSERT_TRUE(directory.ok()) << directory.status();
  const ZipRecord text = directory->at("archive/data.pkl");
  EXPECT_EQ(bytes.substr(text.offset, text.size), "abc");
  const ZipRecord values = directory->at("archive/data/0");
  EXPECT_EQ(bytes.substr(values.offset, values.size), std::string(1000, 'v'));
  EXPECT_EQ(text.crc32, 0x352441c2u);  // of "abc"
}

// Without the zip64 end that LibTorch writes.
TEST(ZipDirectoryTest, Zip64IsNotNeeded) {
  std::string bytes = Archive();
  const size_t end64 = bytes.rfind("PK\6\6");
  bytes.erase(end64, bytes.rfind("PK\5\6") - end64);
  EXPECT_EQ(Read(bytes)->size(), Read(Archive())->size());
}

TEST(ZipDirectoryTest, EveryTruncationIsRefused) {
  const std::string bytes = Archive();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ErrorOf(bytes.substr(0, size)), HasSubstr("truncated"));
  }
}

TEST(ZipDirectoryTest, NothingIsDecompressed) {
  const auto directory = Read(Archive(/*compressed=*/true));
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_TRUE(directory->at("archive/data.pkl").is_stored);
  EXPECT_FALSE(directory->at("archive/data/0").is_stored);
  EXPECT_LT(directory->at("archive/data/0").size, 1000u);
  const auto encrypted = Read(With(Archive(), "PK\1\2", 8, uint16_t{1}));
  EXPECT_FALSE(encrypted->at("archive/.data/serialization_id").is_stored);
}

TEST(ZipDirectoryTest, WhatIsNotWithinTheFileIsRefused) {
  const std::string bytes = Archive();
  const std::string entry = "PK\1\2";
  // Sizes, then the place of the local header.
  EXPECT_THAT(ErrorOf(With(With(bytes, entry, 24, uint32_t{1} << 30), entry, 20,
                           uint32_t{1} << 30)),
              HasSubstr("is not within it"));
  EXPECT_THAT(ErrorOf(With(bytes, entry, 24, uint32_t{1})),
              HasSubstr("is not within it"));
  EXPECT_THAT(ErrorOf(With(bytes, entry, 42, uint32_t{1} << 30)),
              HasSubstr("are asked for"));
  EXPECT_THAT(ErrorOf(With(bytes, entry, 42, uint32_t{1})),
              HasSubstr("is not within it"));
  // In a zip64 field that is not there.
  EXPECT_THAT(ErrorOf(With(bytes, entry, 42, ~uint32_t{0})),
              HasSubstr("zip64 is damaged"));
  EXPECT_THAT(ErrorOf(With(bytes, "PK\6\6", 48, ~uint64_t{0})),
              HasSubstr("are asked for"));
  EXPECT_THAT(ErrorOf(With(bytes, "PK\6\6", 40, ~uint64_t{0})),
              HasSubstr("at most"));
  EXPECT_THAT(ErrorOf(With(bytes, "PK\6\7", 8, ~uint64_t{0})),
              HasSubstr("are asked for"));
}

TEST(ZipDirectoryTest, ADamagedDirectoryIsRefused) {
  const std::string bytes = Archive();
  EXPECT_THAT(ErrorOf(With(bytes, "PK\1\2", 28, ~uint16_t{0})),
              HasSubstr("directory is damaged"));
  EXPECT_THAT(ErrorOf(With(bytes, "PK\1\2", 0, 'X')),
              HasSubstr("directory is damaged"));
}

}  // namespace
}  // namespace tandem::zip_directory_test
