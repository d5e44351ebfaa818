#include "datasets/idx.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/log_lines.h"
#include "tests/datasets/files.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Size of this process, in bytes.
rlim_t AddressSpace() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

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
      {"one byte long, gz", Gzip(good + "x"), "too long: 31 bytes or more"},
      {"sizes beyond memory",
       IdxBytes({0xffffffff, 0xffffffff, 0xffffffff}, Pixels(30)),
       "need more than 2147483648"},
      {"sizes whose product is 2^64",
       IdxBytes({0x80000000, 0x80000000, 4}, Pixels(30)),
       "need more than 2147483648"},
      {"truncated gz", gz.substr(0, gz.size() / 2), "the gzip data ends early"},
      {"gz header alone", gz.substr(0, 2), "the gzip data ends early"},
      {"damaged gz", bad_byte, "damaged: not valid gzip data"},
  };
}

TEST(IdxTest, EveryKindOfDamageIsAnErrorThatNamesTheFile) {
  for (const Corrupt& corrupt : CorruptFiles()) {
    SCOPED_TRACE(corrupt.what);
    const std::string path = WriteTestFile("corrupt", corrupt.bytes);
    const absl::Status status = ReadIdx(path, 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(absl::StartsWith(status.message(), path + ": ")) << status;
    EXPECT_THAT(status, Says(corrupt.message));
  }
}

TEST(IdxTest, AMissingFileAndAFolderAreErrors) {
  const std::string missing = ::testing::TempDir() + "/nobody";
  const absl::Status status = ReadIdx(missing, 1).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kNotFound, "nobody: No such file"));
  const absl::Status folder = ReadIdx(::testing::TempDir(), 1).status();
  EXPECT_EQ(folder.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(folder, Says("Is a directory"));
}

// A disk or a network file system fails so: no mistake of the user who named
// the file. Nothing is mapped at address 0 of this process.
TEST(IdxTest, AReadThatFailsIsNoMistakeOfTheUsers) {
  const absl::Status status = ReadIdx("/proc/self/mem", 1).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               "/proc/self/mem: Input/output error"));
}

TEST(IdxTest, ADeviceOrAPipeIsRefusedAtOnce) {
  const std::string pipe = ::testing::TempDir() + "/pipe";
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    EXPECT_THAT(ReadIdx(path, 3).status(), Says(path + ": not a regular file"));
  }
}

// What a job of 200 MiB would be asked for: the sizes promise 30 bytes.
TEST(IdxTest, AGzipBombIsRefusedByWhatItsHeaderPromises) {
  const std::string bomb =
      Gzip(IdxBytes({2, 3, 5}, std::string(200 << 20, '\0')));
  const std::string path = WriteTestFile("bomb", bomb);
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &old), 0);
  rlimit limit = old;
  limit.rlim_cur = AddressSpace() + (64 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const absl::Status status = ReadIdx(path, 3).status();
  setrlimit(RLIMIT_AS, &old);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               "too long: 31 bytes or more behind the header"));
}

absl::StatusOr<std::string> Content(const std::string& path, int64_t most) {
  TANDEM_ASSIGN_OR_RETURN(UnpackedFile file, UnpackedFile::Open(path));
  std::string content;
  TANDEM_RETURN_IF_ERROR(file.Read(most, &content));
  return content;
}

TEST(GunzipTest, SeveralMembersAreOneFile) {
  const absl::StatusOr<std::string> content = Content(
      WriteTestFile("members", Gzip("one ") + Gzip("") + Gzip("two")), 100);
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(*content, "one two");
}

TEST(GunzipTest, BytesBehindPackedDataAreIgnoredAndSaid) {
  const std::string long_content = Pixels(3'000'001);
  for (const auto& [packed, unpacked] :
       {std::pair<std::string, std::string>(Gzip("one"), "one"),
        {Gzip("one ") + Gzip("two"), "one two"},
        {Gzip(long_content), long_content}}) {
    for (const std::string& tail :
         {std::string("tail"), std::string("t"), std::string(200'000, '\0')}) {
      LogLines log;
      const absl::StatusOr<std::string> content =
          Content(WriteTestFile("tail", packed + tail), 4'000'000);
      ASSERT_TRUE(content.ok()) << content.status();
      EXPECT_EQ(*content, unpacked);
      EXPECT_THAT(log.lines(),
                  ElementsAre(testing::AllOf(
                      HasSubstr("/tail: "),
                      HasSubstr(absl::StrCat(": ", tail.size(), " byte")))));
    }
    LogLines log;
    ASSERT_TRUE(Content(WriteTestFile("whole", packed), 4'000'000).ok());
    EXPECT_THAT(log.lines(), testing::IsEmpty());
  }
}

TEST(GunzipTest, ASecondMemberThatIsDamagedOrTruncatedIsAnError) {
  const std::string first = Gzip("one"), second = Gzip("two");
  std::string damaged = second;
  damaged[second.size() - 6] ^= 1;  // in the checksum
  for (const auto& [bytes, message] :
       {std::pair<std::string, const char*>(damaged, "damaged"),
        {second.substr(0, second.size() - 1), "truncated"}}) {
    const auto content = Content(WriteTestFile("second", first + bytes), 100);
    EXPECT_THAT(content.status(),
                StatusIs(absl::StatusCode::kDataLoss, message));
  }
}

TEST(GunzipTest, ContentLongerThanAChunkIsWhole) {
  const std::string long_content = Pixels(3'000'001);
  for (const std::string& bytes : {long_content, Gzip(long_content)}) {
    const absl::StatusOr<std::string> content =
        Content(WriteTestFile("long", bytes), 4'000'000);
    ASSERT_TRUE(content.ok()) << content.status();
    EXPECT_EQ(*content, long_content);
  }
}

TEST(GunzipTest, GivesWhatIsAskedFor) {
  const std::string content = Pixels(1000);
  for (const std::string& bytes : {content, Gzip(content)}) {
    auto file = UnpackedFile::Open(WriteTestFile("pieces", bytes));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->length().has_value(), bytes == content);
    std::string read;
    for (int64_t size : {0, 1, 9, 990}) {
      const size_t before = read.size();
      ASSERT_TRUE(file->Read(size, &read).ok());
      EXPECT_EQ(read.size() - before, size);
    }
    EXPECT_EQ(read, content);
    ASSERT_TRUE(file->Read(5, &read).ok());
    EXPECT_EQ(read, content);
  }
}

}  // namespace
}  // namespace tandem
