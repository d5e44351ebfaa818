#include "tools/trainer/job/save_folder.h"

#include <filesystem>
#include <string>

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

// Of three ranks, the last of which may be told another folder.
absl::Status Prepare(const std::string& folder, const std::string& of_last) {
  return RunThreadRanks(3, [&](Communicator& world) {
    return PrepareSaveFolder(world.rank() == 2 ? of_last : folder, world);
  });
}

TEST(PrepareSaveFolderTest, MakesTheFolderAndLeavesNothingInIt) {
  const std::string folder = NewFolder("prepared") + "/a/b";
  EXPECT_TRUE(Prepare(folder, folder).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(Prepare(folder, folder).ok());
  EXPECT_TRUE(Prepare("", "").ok());
}

TEST(PrepareSaveFolderTest, NamesTheFolderThatCannotBeUsed) {
  const auto message = [](const std::string& folder) {
    return std::string(Prepare(folder, folder).message());
  };
  EXPECT_THAT(message("/proc/nowhere"),
              HasSubstr("--save_dir=/proc/nowhere: cannot make the folder"));
  EXPECT_THAT(message("/proc"), HasSubstr("--save_dir=/proc: cannot write"));
  EXPECT_FALSE(Prepare("/dev/null", "/dev/null").ok());
  const std::string link = NewFolder("dangling");
  std::filesystem::create_symlink("/no/such/disk", link);
  EXPECT_THAT(message(link),
              HasSubstr("--save_dir=" + link +
                        ": it is a link to /no/such/disk, which is not there"));
}

}  // namespace
}  // namespace tandem::save_folder_test
