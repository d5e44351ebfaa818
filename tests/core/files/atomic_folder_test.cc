#include "core/files/atomic_folder.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/files/regular_file.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/test_files.h"

namespace tandem::atomic_folder_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

namespace fs = std::filesystem;

std::string NewPath(const std::string& name) {
  return NewTestFolder(name) + "/it";
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

std::string ParentOf(const std::string& path) {
  return fs::path(path).parent_path();
}

std::vector<std::string> NamesBeside(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator(ParentOf(path))) {
    names.push_back(each.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool Any(absl::string_view /*name*/) { return true; }

// Where it is then.
absl::StatusOr<std::string> Write(const std::string& path,
                                  const std::string& text) {
  auto folder = AtomicFolder::Create(path);
  if (!folder.ok()) return folder.status();
  Fill((*folder)->temporary(), text);
  return (*folder)->Commit();
}

// A process that is killed while it writes one.
void LeaveOne(const std::string& path, const std::function<void()>& before) {
  const pid_t child = fork();
  if (child == 0) {
    const auto folder = AtomicFolder::Create(path);
    Fill((*folder)->temporary(), "half");
    before();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(AtomicFolderTest, IsThereWhenItIsCommitted) {
  const std::string path = NewPath("new");
  auto folder = AtomicFolder::Create(path);
  ASSERT_TRUE(folder.ok()) << folder.status();
  Fill((*folder)->temporary(), "one");
  EXPECT_FALSE(fs::exists(path));
  EXPECT_THAT((*folder)->temporary(), StartsWith(path + ".tmp."));
  EXPECT_EQ((*folder)->Commit().value(), path);
  EXPECT_EQ(Read(path), "one");
  EXPECT_THAT(NamesBeside(path), ElementsAre("it"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path), {}), 1);
  // The mode of any folder that is made.
  const std::string usual = ParentOf(path) + "/usual";
  fs::create_directory(usual);
  EXPECT_EQ(fs::status(path).permissions(), fs::status(usual).permissions());
}

TEST(AtomicFolderTest, NeverReplacesWhatIsThere) {
  const std::string path = NewPath("again");
  EXPECT_EQ(Write(path, "one").value(), path);
  EXPECT_EQ(Write(path, "two").value(), path + ".1");
  EXPECT_EQ(Write(path, "three").value(), path + ".2");
  EXPECT_EQ(Read(path), "one");
  EXPECT_EQ(Read(path + ".1"), "two");
  // A file, and a link to nowhere, are something; an empty folder is nothing.
  const std::string file = NewPath("file");
  std::ofstream(file) << "x";
  fs::create_symlink("nowhere", file + ".1");
  fs::create_directory(file + ".2");
  EXPECT_EQ(Write(file, "one").value(), file + ".2");
}

// Two jobs in one folder by mistake, or one that is requeued before it ended.
TEST(AtomicFolderTest, WhoWritesTheSameAtTheSameTimeLosesNothing) {
  const std::string path = NewPath("both");
  constexpr int kWriters = 7;
  constexpr int kTimes = 20;
  std::vector<std::thread> writers;
  std::atomic<int> failed{0};
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&] {
      for (int j = 0; j < kTimes; ++j) {
        if (!Write(path, "whole").ok()) ++failed;
        // Another's, which it is writing, stays.
        RemoveAbandonedFolders(ParentOf(path), Any);
      }
    });
  }
  for (std::thread& each : writers) each.join();
  EXPECT_EQ(failed, 0);
  const std::vector<std::string> names = NamesBeside(path);
  EXPECT_EQ(names.size(), static_cast<size_t>(kWriters * kTimes));
  for (const std::string& name : names) {
    EXPECT_EQ(Read(ParentOf(path) + "/" + name), "whole") << name;
  }
}

TEST(AtomicFolderTest, WithoutCommitNothingIsLeft) {
  const std::string path = NewPath("dropped");
  fs::create_directories(path);
  Fill(path, "old");
  {
    auto folder = AtomicFolder::Create(path);
    ASSERT_TRUE(folder.ok());
    Fill((*folder)->temporary(), "new");
  }
  EXPECT_EQ(Read(path), "old");
  EXPECT_THAT(NamesBeside(path), ElementsAre("it"));
}

TEST(AtomicFolderTest, AnAbandonedOneIsRemovedOneInUseIsNot) {
  const std::string path = NewPath("abandoned");
  auto folder = AtomicFolder::Create(path);
  ASSERT_TRUE(folder.ok()) << folder.status();
  LeaveOne(path, [] {});
  ASSERT_EQ(NamesBeside(path).size(), 2u);
  const auto nobodys = [](absl::string_view name) { return name != "it"; };
  EXPECT_THAT(RemoveAbandonedFolders(ParentOf(path), nobodys), IsEmpty());
  const auto removed = RemoveAbandonedFolders(ParentOf(path), Any);
  EXPECT_THAT(removed, ElementsAre(StartsWith("it.tmp.")));
  EXPECT_EQ((*folder)->Commit().value(), path);
}

// What a process of another machine leaves in a folder. Whether it runs cannot
// be told.
std::string LeaveOneElsewhere(const std::string& path,
                              const std::string& where) {
  LeaveOne(path, [] {});
  const std::string left = ParentOf(path) + "/" + NamesBeside(path).front();
  std::ofstream(left + "/.owner") << where << "\n1 2\nthe-job\n";
  return left;
}

void SetAge(const std::string& path, std::chrono::minutes age) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

TEST(AtomicFolderTest, OneOfAnotherMachineIsRemovedWhereItsJobGoesOnHere) {
  const std::string path = NewPath("goes_on");
  const auto removed_for = [&](const std::string& job) {
    return RemoveAbandonedFolders(ParentOf(path), Any, job).size();
  };
  for (const char* where : {"another-boot pid:[1]", ""}) {
    const std::string left = LeaveOneElsewhere(path, where);
    // It may go on there, too: as long as something is written it stays.
    for (const char* name : {"/.owner", "/file", ""}) {
      EXPECT_EQ(removed_for("the-job"), 0u) << name;
      SetAge(left + name, std::chrono::minutes(11));
    }
    SetAge(left + "/file", std::chrono::minutes(9));
    EXPECT_EQ(removed_for("the-job"), 0u);
    SetAge(left + "/file", std::chrono::minutes(11));
    EXPECT_EQ(removed_for("other"), 0u);
    EXPECT_EQ(removed_for(""), 0u);
    EXPECT_EQ(removed_for("the-job"), 1u);
  }
  EXPECT_THAT(NamesBeside(path), IsEmpty());
  // Not while it is written here.
  const auto folder = AtomicFolder::Create(path, "the-job");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(removed_for("the-job"), 0u);
}

TEST(AtomicFolderTest, OneOfAnotherMachineIsRemovedWhenItIsADayOld) {
  const std::string path = NewPath("elsewhere");
  const std::string left = LeaveOneElsewhere(path, "another-boot pid:[1]");
  for (const char* name : {"/.owner", "/file", ""}) {
    EXPECT_THAT(RemoveAbandonedFolders(ParentOf(path), Any), IsEmpty()) << name;
    SetAge(left + name, std::chrono::hours(25));
  }
  EXPECT_EQ(RemoveAbandonedFolders(ParentOf(path), Any).size(), 1u);
}

TEST(AtomicFolderTest, ErrorsNameThePath) {
  const auto folder = AtomicFolder::Create("/proc/nowhere/it");
  EXPECT_THAT(std::string(folder.status().message()),
              HasSubstr("cannot write /proc/nowhere/it: making"));
  const std::string path = NewPath("gone");
  auto lost = AtomicFolder::Create(path);
  ASSERT_TRUE(lost.ok());
  fs::remove_all((*lost)->temporary());
  EXPECT_EQ((*lost)->Commit().status().code(), absl::StatusCode::kNotFound);
}

TEST(RemoveFolderTest, LeavesNothing) {
  const std::string path = NewPath("removed");
  fs::create_directories(path);
  Fill(path, "one");
  ASSERT_TRUE(RemoveFolder(path).ok());
  EXPECT_THAT(NamesBeside(path), IsEmpty());
  EXPECT_EQ(RemoveFolder(path).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(NamesBeside(path), IsEmpty());
}

TEST(FolderLockTest, OneHasItAtATimeAndNothingIsLeft) {
  const std::string folder = ::testing::TempDir() + "/locked";
  std::filesystem::create_directories(folder);
  absl::StatusOr<OwnedFd> first = LockFolder(folder, milliseconds(0));
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(static_cast<bool>(*first)) << "the file system has no locks";
  EXPECT_THAT(LockFolder(folder, milliseconds(60)).status(),
              StatusIs(absl::StatusCode::kAlreadyExists, folder));
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

std::string Written(const std::string& name, const std::string& text) {
  std::ofstream(TestPath(name), std::ios::binary) << text;
  return TestPath(name);
}

TEST(RegularFileTest, PiecesFromAnywhere) {
  const auto file = RegularFile::Open(Written("pieces", "0123456789"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 10u);
  std::string piece(4, ' ');
  ASSERT_TRUE(file->ReadAt(6, piece.data(), 4).ok());
  EXPECT_EQ(piece, "6789");
  EXPECT_THAT(file->ReadAt(7, piece.data(), 4),
              InvalidArgument(TestPath("pieces") + ": it became shorter"));
}

TEST(RegularFileTest, WhatIsNoFileIsNamed) {
  EXPECT_EQ(RegularFile::Open(TestPath("absent")).status().code(),
            absl::StatusCode::kNotFound);
  const std::string pipe = TestPath("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, testing::TempDir()}) {
    const absl::Status status = RegularFile::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), path + ": not a regular file");
  }
}

TEST(RegularFileTest, AShortFileIsReadWhole) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(*ReadShortFile(Written("short", text), 3), text);
  EXPECT_EQ(*ReadShortFile(Written("empty", ""), 3), "");
  const absl::Status status = ReadShortFile(TestPath("short"), 2).status();
  EXPECT_EQ(status.message(),
            TestPath("short") +
                " has 3 bytes, more than the 2 that such a file can have");
}

}  // namespace
}  // namespace tandem::atomic_folder_test
