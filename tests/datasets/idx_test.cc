// Also tests datasets/gunzip.h.

#include "datasets/idx.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "datasets/gunzip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/files.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Pixels(int64_t count) {
  std::string bytes(count, '\0');
  for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 7);
  return bytes;
}

TEST(IdxTest, ReadsPlainAndGzipped) {
  const std::string file = IdxBytes({2, 3, 5}, Pixels(30));
  for (const std::string& bytes : {file, Gzip(file)}) {
    const absl::StatusOr<IdxArray> array =
        ReadIdx(WriteTestFile("images", bytes), 3);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_THAT(array->sizes, ElementsAre(2, 3, 5));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(array->data()), 30),
              Pixels(30));
  }
}

TEST(IdxTest, AnEmptyArrayIsOne) {
  const absl::StatusOr<IdxArray> array =
      ReadIdx(WriteTestFile("empty", IdxBytes({0, 28, 28}, "")), 3);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->sizes, ElementsAre(0, 28, 28));
}

struct Corrupt {
  std::string what;
  std::string bytes;
  std::string message;
};

std::vector<Corrupt> CorruptFiles() {
  const std::string good = IdxBytes({2, 3, 5}, Pixels(30));
  const std::string gz = Gzip(good);
  std::string dtype = good, bad_byte = gz, magic = good;
  magic[0] = 'P';
  dtype[2] = 0x0d;
  bad_byte[gz.size() - 6] ^= 1;  // in the checksum
  return {
      {"empty", "", "not an IDX file"},
      {"half a magic", good.substr(0, 3), "not an IDX file"},
      {"wrong magic", magic,
       "begins with bytes '50000803', expected '00000803'"},
      {"wrong dtype", dtype, "dtype 0xd, expected 0x8"},
      {"other dimensions", IdxBytes({30}, Pixels(30)),
       "1 dimensions, expected 3"},
      {"half a header", good.substr(0, 9), "9 bytes, expected a header of 16"},
      {"no array", good.substr(0, 16), "truncated: 0 bytes behind the header"},
      {"one byte short", good.substr(0, good.size() - 1),
       "truncated: 29 bytes behind the header, but its sizes [2, 3, 5] need "
       "30"},
      {"one byte long", good + "x", "too long: 31 bytes"},
      {"one byte short, gz", Gzip(good.substr(0, good.size() - 1)),
       "truncated: 29 bytes"},
      {"one byte long, gz", Gzip(good + "x"), "too long: 31 bytes"},
      {"sizes beyond memory",
       IdxBytes({0xffffffff, 0xffffffff, 0xffffffff}, Pixels(30)),
       "need more than 2147483648"},
      {"sizes whose product is 2^64",
       IdxBytes({0x80000000, 0x80000000, 4}, Pixels(30)),
       "need more than 2147483648"},
      {"truncated gz", gz.substr(0, gz.size() / 2), "the gzip data ends early"},
      {"gz header alone", gz.substr(0, 2), "the gzip data ends early"},
      {"damaged gz", bad_byte, "damaged: not valid gzip data"},
      {"bytes behind gz", gz + "tail", "damaged: not valid gzip data"},
  };
}

TEST(IdxTest, EveryKindOfDamageIsAnErrorThatNamesTheFile) {
  for (const Corrupt& corrupt : CorruptFiles()) {
    SCOPED_TRACE(corrupt.what);
    const std::string path = WriteTestFile("corrupt", corrupt.bytes);
    const absl::Status status = ReadIdx(path, 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(absl::StartsWith(status.message(), path + ": ")) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(corrupt.message));
  }
}

TEST(IdxTest, AMissingFileAndAFolderAreErrors) {
  const std::string missing = ::testing::TempDir() + "/nobody";
  const absl::Status status = ReadIdx(missing, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nobody: No such file"));
  EXPECT_THAT(std::string(ReadIdx(::testing::TempDir(), 1).status().message()),
              HasSubstr("Is a directory"));
}

TEST(GunzipTest, SeveralMembersAreOneFile) {
  const absl::StatusOr<std::string> content = ReadFileGunzip(
      WriteTestFile("members", Gzip("one ") + Gzip("") + Gzip("two")), 100);
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(*content, "one two");
}

TEST(GunzipTest, ContentLongerThanAChunkIsWhole) {
  const std::string long_content = Pixels(3'000'001);
  for (const std::string& bytes : {long_content, Gzip(long_content)}) {
    const absl::StatusOr<std::string> content =
        ReadFileGunzip(WriteTestFile("long", bytes), 3'000'001);
    ASSERT_TRUE(content.ok()) << content.status();
    EXPECT_EQ(*content, long_content);
  }
}

TEST(GunzipTest, TheLimitHoldsForPackedAndUnpackedBytes) {
  const std::string zeros(1'000'000, '\0');
  for (const std::string& bytes : {zeros, Gzip(zeros)}) {
    const absl::Status status =
        ReadFileGunzip(WriteTestFile("bomb", bytes), 999'999).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("bomb: more than 999999 bytes"));
  }
}

}  // namespace
}  // namespace tandem
