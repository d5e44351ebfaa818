#include "tools/trainer/job/save_folder.h"

#include <filesystem>
#include <string>

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

TEST(PrepareSaveFolderTest, MakesTheFolderAndLeavesNothingInIt) {
  const std::string folder = NewFolder("prepared") + "/a/b";
  ASSERT_TRUE(PrepareSaveFolder(folder).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(PrepareSaveFolder(folder).ok());
  EXPECT_TRUE(PrepareSaveFolder("").ok());
}

TEST(PrepareSaveFolderTest, NamesTheFolderThatCannotBeUsed) {
  EXPECT_THAT(std::string(PrepareSaveFolder("/proc/nowhere").message()),
              HasSubstr("--save_dir=/proc/nowhere: cannot make"));
  EXPECT_THAT(std::string(PrepareSaveFolder("/proc").message()),
              HasSubstr("--save_dir=/proc: cannot make a file in it"));
  EXPECT_FALSE(PrepareSaveFolder("/dev/null").ok());
}

}  // namespace
}  // namespace tandem::save_folder_test
