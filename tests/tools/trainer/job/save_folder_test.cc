#include "tools/trainer/job/save_folder.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

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

TEST(PrepareSaveFolderTest, RemovesWhatKilledJobsLeftAndNothingElse) {
  const std::string folder = NewFolder("left");
  std::filesystem::create_directories(folder);
  const std::vector<std::string> stay = {"step-000000003.safetensors",
                                         "notes.tmp.aB3dE9"};
  for (const std::string& name : stay) std::ofstream(folder + "/" + name) << 1;
  std::ofstream(folder + "/step-000000042.safetensors.tmp.aB3dE9") << "half";
  ASSERT_TRUE(PrepareSaveFolder(folder).ok());
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    found.push_back(entry.path().filename());
  }
  EXPECT_THAT(found, UnorderedElementsAreArray(stay));
}

TEST(PrepareSaveFolderTest, LatestMustBeOneThatCanBecomeALink) {
  const std::string folder = NewFolder("no_link");
  std::filesystem::create_directories(folder + "/latest.safetensors");
  EXPECT_THAT(std::string(PrepareSaveFolder(folder).message()),
              HasSubstr("cannot make latest.safetensors a link: it is there"));
  std::filesystem::remove(folder + "/latest.safetensors");
  std::ofstream(folder + "/latest.safetensors") << "a copy of the link";
  EXPECT_TRUE(PrepareSaveFolder(folder).ok());
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
