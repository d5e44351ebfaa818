#include "core/files/folder_lock.h"

#include <filesystem>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::folder_lock_test {
namespace {

using std::chrono::milliseconds;

TEST(FolderLockTest, OneHasItAtATimeAndNothingIsLeft) {
  const std::string folder = ::testing::TempDir() + "/locked";
  std::filesystem::create_directories(folder);
  absl::StatusOr<OwnedFd> first = LockFolder(folder, milliseconds(0));
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(static_cast<bool>(*first)) << "the file system has no locks";
  const absl::Status second = LockFolder(folder, milliseconds(60)).status();
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
  EXPECT_THAT(second.message(), ::testing::HasSubstr(folder));
  *first = OwnedFd();
  EXPECT_TRUE(LockFolder(folder, milliseconds(0)).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(FolderLockTest, WhereNoneCanBeHadThereIsNone) {
  const absl::StatusOr<OwnedFd> none =
      LockFolder(::testing::TempDir() + "/no/such", milliseconds(0));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(static_cast<bool>(*none));
}

}  // namespace
}  // namespace tandem::folder_lock_test
