#include "core/files/atomic_folder.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::atomic_folder_test {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

std::string NewPath(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder + "/it";
}

void Fill(const std::string& folder, const std::string& text) {
  std::ofstream(folder + "/file") << text;
}

std::string Read(const std::string& folder) {
  std::ifstream file(folder + "/file");
  std::string text;
  file >> text;
  return text;
}

bool Any(absl::string_view name) { return true; }

TEST(AtomicFolderTest, IsThereWhenItIsCommitted) {
  const std::string path = NewPath("new");
  auto folder = AtomicFolder::Create(path);
  ASSERT_TRUE(folder.ok()) << folder.status();
  Fill(IncompleteFolder(path), "one");
  EXPECT_FALSE(fs::exists(path));
  ASSERT_TRUE((*folder)->Commit().ok());
  EXPECT_EQ(Read(path), "one");
  EXPECT_FALSE(fs::exists(IncompleteFolder(path)));
}

TEST(AtomicFolderTest, ReplacesWhatWasThere) {
  const std::string path = NewPath("replaced");
  for (const char* text : {"one", "two"}) {
    auto folder = AtomicFolder::Create(path);
    ASSERT_TRUE(folder.ok()) << folder.status();
    Fill(IncompleteFolder(path), text);
    ASSERT_TRUE((*folder)->Commit().ok());
    EXPECT_EQ(Read(path), text);
  }
  EXPECT_FALSE(fs::exists(IncompleteFolder(path)));
}

TEST(AtomicFolderTest, WithoutCommitNothingIsLeft) {
  const std::string path = NewPath("dropped");
  fs::create_directories(path);
  Fill(path, "old");
  {
    auto folder = AtomicFolder::Create(path);
    ASSERT_TRUE(folder.ok());
    Fill(IncompleteFolder(path), "new");
  }
  EXPECT_EQ(Read(path), "old");
  EXPECT_FALSE(fs::exists(IncompleteFolder(path)));
}

TEST(AtomicFolderTest, AnAbandonedOneIsReplacedOneInUseIsNot) {
  const std::string path = NewPath("abandoned");
  fs::create_directories(IncompleteFolder(path));
  Fill(IncompleteFolder(path), "half");
  auto folder = AtomicFolder::Create(path);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_FALSE(fs::exists(IncompleteFolder(path) + "/file"));
  const std::string parent = fs::path(path).parent_path();
  EXPECT_TRUE(RemoveAbandonedFolders(parent, Any).empty());
  EXPECT_THAT(std::string(AtomicFolder::Create(path).status().message()),
              HasSubstr("another process writes"));
  EXPECT_TRUE((*folder)->Commit().ok());
}

TEST(AtomicFolderTest, ErrorsNameThePath) {
  const auto folder = AtomicFolder::Create("/proc/nowhere/it");
  EXPECT_THAT(std::string(folder.status().message()),
              HasSubstr("cannot write /proc/nowhere/it: making"));
  const std::string path = NewPath("gone");
  auto lost = AtomicFolder::Create(path);
  ASSERT_TRUE(lost.ok());
  fs::remove_all(IncompleteFolder(path));
  EXPECT_EQ((*lost)->Commit().code(), absl::StatusCode::kNotFound);
}

TEST(RemoveFolderTest, LeavesNothing) {
  const std::string path = NewPath("removed");
  fs::create_directories(path);
  Fill(path, "one");
  ASSERT_TRUE(RemoveFolder(path).ok());
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(IncompleteFolder(path)));
  EXPECT_EQ(RemoveFolder(path).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem::atomic_folder_test
