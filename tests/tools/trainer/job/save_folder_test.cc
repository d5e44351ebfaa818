#include "tools/trainer/job/save_folder.h"

#include <chrono>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "core/base/owned_fd.h"
#include "core/base/status_macros.h"
#include "core/files/folder_lock.h"
#include "core/testing/thread_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::save_folder_test {
namespace {

using ::testing::HasSubstr;

std::string NewFolder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

// What three ranks get.
absl::Status Prepare(const std::string& folder) {
  OwnedFd locks[3];
  return RunThreadRanks(3, [&](Communicator& world) {
    return PrepareSaveFolder(folder, world, &locks[world.rank()]);
  });
}

TEST(PrepareSaveFolderTest, MakesTheFolderAndLeavesNothingInIt) {
  const std::string folder = NewFolder("prepared") + "/a/b";
  EXPECT_TRUE(Prepare(folder).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(Prepare(folder).ok());
  EXPECT_TRUE(Prepare("").ok());
}

TEST(PrepareSaveFolderTest, AFolderThatAnotherJobHasIsRefused) {
  const std::string folder = NewFolder("taken");
  std::filesystem::create_directories(folder);
  absl::StatusOr<OwnedFd> others =
      LockFolder(folder, std::chrono::milliseconds(0));
  ASSERT_TRUE(others.ok() && *others) << others.status();
  const absl::Status status = Prepare(folder);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--save_dir=" + folder + ": another job has it"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

// Ranks are replaced, and another one is then the first.
TEST(PrepareSaveFolderTest, TheLockGoesFromOneRankToAnother) {
  const std::string folder = NewFolder("handed_on");
  const absl::Status status =
      RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
        OwnedFd lock;
        TANDEM_RETURN_IF_ERROR(PrepareSaveFolder(folder, world, &lock));
        EXPECT_EQ(static_cast<bool>(lock), world.rank() == 0);
        TANDEM_ASSIGN_OR_RETURN(const auto turned,
                                world.Subgroup({1, 0}, "turned"));
        TANDEM_RETURN_IF_ERROR(PrepareSaveFolder(folder, *turned, &lock));
        EXPECT_EQ(static_cast<bool>(lock), world.rank() == 1);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(PrepareSaveFolderTest, NamesTheFolderThatCannotBeUsed) {
  const auto message = [](const std::string& folder) {
    return std::string(Prepare(folder).message());
  };
  EXPECT_THAT(message("/proc/nowhere"),
              HasSubstr("--save_dir=/proc/nowhere: cannot make the folder"));
  EXPECT_THAT(message("/proc"), HasSubstr("--save_dir=/proc: cannot write"));
  EXPECT_FALSE(Prepare("/dev/null").ok());
  const std::string link = NewFolder("dangling");
  std::filesystem::create_symlink("/no/such/disk", link);
  EXPECT_THAT(message(link),
              HasSubstr("--save_dir=" + link +
                        ": it is a link to /no/such/disk, which is not there"));
}

}  // namespace
}  // namespace tandem::save_folder_test
