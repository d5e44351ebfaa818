#include "tools/trainer/save_folder.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
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

TEST(CheckpointNameTest, SortsByStep) {
  EXPECT_EQ(CheckpointName(42), "step-000000042.safetensors");
  EXPECT_LT(CheckpointName(99), CheckpointName(100));
}

TEST(PointLatestAtTest, ReplacesTheLinkAndLeavesNothingBeside) {
  const std::string folder = NewFolder("latest");
  ASSERT_TRUE(PrepareSaveFolder(folder).ok());
  for (const char* name : {"one", "two"}) {
    ASSERT_TRUE(PointLatestAt(folder, name).ok());
    EXPECT_EQ(std::filesystem::read_symlink(folder + "/latest.safetensors"),
              name);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder),
                          std::filesystem::directory_iterator()),
            1);
  EXPECT_THAT(std::string(PointLatestAt("/nonexistent", "x").message()),
              HasSubstr("/nonexistent/latest.safetensors"));
}

TEST(CheckpointFileTest, IsAFoldersLatestOrTheFileItself) {
  const std::string folder = NewFolder("file");
  ASSERT_TRUE(PrepareSaveFolder(folder).ok());
  EXPECT_EQ(CheckpointFile(folder), folder + "/latest.safetensors");
  EXPECT_EQ(CheckpointFile(folder + "/x.safetensors"),
            folder + "/x.safetensors");
}

}  // namespace
}  // namespace tandem
