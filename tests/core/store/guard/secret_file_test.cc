#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "core/store/guard/job_secret.h"

namespace {

// The user that this process believes to be.
uid_t user = getuid();

}  // namespace

// Stands before the C library's.
extern "C" uid_t geteuid() noexcept { return user; }

namespace tandem::secret_file_test {
namespace {

using ::testing::HasSubstr;

constexpr char kSecret[] = "sixteen bytes or more";

std::string File(const std::string& contents, mode_t mode) {
  static int count = 0;
  const std::string path =
      ::testing::TempDir() + "/secret" + std::to_string(++count);
  std::ofstream(path) << contents;
  EXPECT_EQ(chmod(path.c_str(), mode), 0);
  return path;
}

void ExpectRefused(const std::string& path, absl::StatusCode code,
                   const std::string& why) {
  const absl::Status status = ReadSecretFile(path).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(status.message(), HasSubstr(why));
  EXPECT_THAT(status.message(), HasSubstr(path));
}

TEST(SecretFileTest, HoldsItsSecretWithoutTheLastNewline) {
  EXPECT_EQ(ReadSecretFile(File(kSecret, 0600)).value(), kSecret);
  EXPECT_EQ(ReadSecretFile(File(kSecret, 0400)).value(), kSecret);
  EXPECT_EQ(ReadSecretFile(File(std::string(kSecret) + "\n", 0600)).value(),
            kSecret);
  EXPECT_EQ(ReadSecretFile(File(std::string(kSecret) + "\r\n", 0600)).value(),
            kSecret);
  EXPECT_EQ(ReadSecretFile(File(std::string(4096, 'x'), 0600)).value(),
            std::string(4096, 'x'));
  EXPECT_EQ(ReadSecretFile(File(std::string(4096, 'x') + "\n", 0600)).value(),
            std::string(4096, 'x'));
}

TEST(SecretFileTest, WhatOthersMayTouchIsRefused) {
  for (const mode_t mode : {0640, 0604, 0644, 0620, 0602, 0610, 0601, 0777}) {
    ExpectRefused(File(kSecret, mode), absl::StatusCode::kFailedPrecondition,
                  "chmod 600");
  }
}

TEST(SecretFileTest, AnotherUsersFileIsRefused) {
  const std::string path = File(kSecret, 0600);
  ++user;
  ExpectRefused(path, absl::StatusCode::kFailedPrecondition,
                "a file of user " + std::to_string(getuid()) +
                    ", but this process is of user " + std::to_string(user));
  --user;
}

TEST(SecretFileTest, SizesAreBetween16And4096) {
  for (const size_t size : {0, 1, 15, 4097, 100000}) {
    ExpectRefused(File(std::string(size, 'x'), 0600),
                  absl::StatusCode::kInvalidArgument, "16 to 4096");
  }
  // Fifteen and a newline.
  ExpectRefused(File(std::string(15, 'x') + "\n", 0600),
                absl::StatusCode::kInvalidArgument, "has 15 bytes");
}

TEST(SecretFileTest, WhatIsNoFileIsRefusedAtOnce) {
  ExpectRefused(::testing::TempDir(), absl::StatusCode::kInvalidArgument,
                "no regular file");
  ExpectRefused("/dev/zero", absl::StatusCode::kInvalidArgument,
                "no regular file");
  const std::string pipe = ::testing::TempDir() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectRefused(pipe, absl::StatusCode::kInvalidArgument, "no regular file");
  ExpectRefused(::testing::TempDir() + "/none", absl::StatusCode::kNotFound,
                "job secret");
  const std::string loop = ::testing::TempDir() + "/loop";
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  ExpectRefused(loop, absl::StatusCode::kFailedPrecondition, "open ");
}

TEST(SecretFileTest, ANewOneIsReadByItsPath) {
  const OwnedFd file = NewSecretFile().value();
  const std::string secret =
      ReadSecretFile(PathOfDescriptor(file.get())).value();
  EXPECT_EQ(secret.size(), 64);
  const OwnedFd other = NewSecretFile().value();
  EXPECT_NE(secret, ReadSecretFile(PathOfDescriptor(other.get())).value());
}

TEST(JobSecretTest, ThereIsNoneUntilOneIsSet) {
  EXPECT_EQ(JobSecret(), "");
  SetJobSecret("secret");
  EXPECT_EQ(JobSecret(), "secret");
  SetJobSecret("");
  EXPECT_EQ(JobSecret(), "");
}

}  // namespace
}  // namespace tandem::secret_file_test
