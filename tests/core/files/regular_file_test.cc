#include "core/files/regular_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::regular_file_test {
namespace {

using ::testing::HasSubstr;

std::string Path(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / name;
}

std::string Written(const std::string& name, const std::string& text) {
  std::ofstream(Path(name), std::ios::binary) << text;
  return Path(name);
}

TEST(RegularFileTest, PiecesFromAnywhere) {
  const auto file = RegularFile::Open(Written("pieces", "0123456789"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 10u);
  std::string piece(4, ' ');
  ASSERT_TRUE(file->ReadAt(6, piece.data(), 4).ok());
  EXPECT_EQ(piece, "6789");
  const absl::Status beyond = file->ReadAt(7, piece.data(), 4);
  EXPECT_EQ(beyond.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(beyond.message()),
              HasSubstr(Path("pieces") + ": it became shorter"));
}

TEST(RegularFileTest, WhatIsNoFileIsNamed) {
  EXPECT_EQ(RegularFile::Open(Path("absent")).status().code(),
            absl::StatusCode::kNotFound);
  const std::string pipe = Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, testing::TempDir()}) {
    const absl::Status status = RegularFile::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), path + ": not a regular file");
  }
}

TEST(RegularFileTest, AShortFileIsReadWhole) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(*ReadShortFile(Written("short", text), 3), text);
  EXPECT_EQ(*ReadShortFile(Written("empty", ""), 3), "");
  const absl::Status status = ReadShortFile(Path("short"), 2).status();
  EXPECT_EQ(status.message(),
            Path("short") +
                " has 3 bytes, more than the 2 that such a file can have");
}

}  // namespace
}  // namespace tandem::regular_file_test
