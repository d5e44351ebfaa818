#include "core/checkpoint/folder/step_folders.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/checkpoint/folder/manifest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/test_files.h"

namespace tandem::step_folders_test {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

void AddCheckpoint(const std::string& folder, const std::string& name) {
  fs::create_directories(folder + "/" + name);
  std::ofstream(folder + "/" + name + "/manifest.json")
      << FormatManifest(Manifest());
}

std::vector<int64_t> StepsOf(const std::vector<StepFolder>& folders) {
  std::vector<int64_t> steps;
  for (const StepFolder& each : folders) steps.push_back(each.step);
  return steps;
}

TEST(StepFoldersTest, CompleteOnesComeFromTheNewestOn) {
  const std::string folder = NewTestFolder("complete");
  for (const char* name :
       {"step-000000009", "step-1234567890", "step-000000010",
        "step-000000010.2", "step-000000010.1", "step-000000011.tmp.a1B2c3",
        "step-12", "step-00000001x", "step-000000012.01", "step-000000012.",
        "notes"}) {
    AddCheckpoint(folder, name);
  }
  std::ofstream(folder + "/step-000000099") << "a file";
  fs::create_directories(folder + "/step-9999999999");  // by hand
  EXPECT_EQ(StepFolderName(9), "step-000000009");
  EXPECT_THAT(StepsOf(CompleteCheckpoints(folder)),
              ElementsAre(1234567890, 10, 10, 10, 9));
  EXPECT_EQ(CompleteCheckpoints(folder)[1].path, folder + "/step-000000010.2");
  EXPECT_EQ(CompleteCheckpoints(folder)[3].path, folder + "/step-000000010");
  EXPECT_THAT(StepsOf(StepFolders(folder)),
              ElementsAre(9999999999, 1234567890, 99, 10, 10, 10, 9));
  EXPECT_EQ(*CheckpointAt(folder), folder + "/step-1234567890");
  EXPECT_THAT(CompleteCheckpoints(folder + "/absent"), IsEmpty());
}

TEST(StepFoldersTest, APathMayNameACheckpointItself) {
  const std::string folder = NewTestFolder("itself");
  AddCheckpoint(folder, "mine");
  std::ofstream(folder + "/old.safetensors") << "x";
  EXPECT_EQ(*CheckpointAt(folder + "/mine"), folder + "/mine");
  EXPECT_EQ(*CheckpointAt(folder + "/old.safetensors"),
            folder + "/old.safetensors");
  EXPECT_EQ(*CheckpointAt(folder + "/absent"), folder + "/absent");
  EXPECT_THAT(std::string(CheckpointAt(folder).status().message()),
              HasSubstr(folder + " is no checkpoint and holds none"));
  std::ofstream(folder + "/latest.safetensors") << "x";
  EXPECT_EQ(*CheckpointAt(folder), folder + "/latest.safetensors");
}

TEST(StepFoldersTest, RetentionKeepsTheLastAndEveryKth) {
  std::vector<StepFolder> all;
  for (int64_t step = 100; step > 0; step -= 10) {
    all.push_back({step, 0, StepFolderName(step)});
  }
  const auto removed = [&](Retention retention, int64_t newest) {
    return StepsOf(ToBeRemoved(all, retention, StepFolderName(newest)));
  };
  EXPECT_THAT(removed({0, 0}, 100), IsEmpty());
  EXPECT_THAT(removed({0, 50}, 100), IsEmpty());
  EXPECT_THAT(removed({7, 0}, 100), ElementsAre(30, 20, 10));
  EXPECT_THAT(removed({3, 40}, 100), ElementsAre(70, 60, 50, 30, 20, 10));
  EXPECT_THAT(removed({20, 0}, 100), IsEmpty());
  // One that was written after others of higher steps stays.
  EXPECT_THAT(removed({8, 0}, 10), ElementsAre(20));
}

TEST(StepFoldersTest, OldOnesGoAndNothingElse) {
  const std::string folder = NewTestFolder("retention");
  for (int64_t step = 1; step <= 6; ++step) {
    AddCheckpoint(folder, StepFolderName(step));
  }
  AddCheckpoint(folder, "notes");
  ASSERT_TRUE(RemoveOld(folder, {2, 3}, folder + "/step-000000006").ok());
  EXPECT_THAT(StepsOf(CompleteCheckpoints(folder)), ElementsAre(6, 5, 3));
  EXPECT_TRUE(fs::exists(folder + "/notes"));
  // The one that was written last, of an earlier step than the other's.
  ASSERT_TRUE(
      RemoveOld(folder + "/", {1, 0}, folder + "//step-000000003").ok());
  EXPECT_THAT(StepsOf(CompleteCheckpoints(folder)), ElementsAre(6, 3));
}

// Its newest two are what the job can go on from.
TEST(StepFoldersTest, DamagedOnesAreNotAmongThoseThatAreKept) {
  const std::string folder = NewTestFolder("damaged");
  for (int64_t step = 1; step <= 5; ++step) {
    AddCheckpoint(folder, StepFolderName(step));
  }
  for (const char* name : {"/step-000000001", "/step-000000004"}) {
    std::ofstream(folder + name + "/manifest.json") << "{}";
  }
  ASSERT_TRUE(RemoveOld(folder, {2, 0}, folder + "/step-000000005").ok());
  EXPECT_THAT(StepsOf(StepFolders(folder)), ElementsAre(5, 4, 3, 1));
}

TEST(StepFoldersTest, WhatKilledJobsLeftGoes) {
  const std::string folder = NewTestFolder("left");
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(25);
  for (const char* name : {"step-000000003", "step-000000004.tmp.a1B2c3",
                           "step-000000005.1.tmp.XyZ123", "notes.tmp.a1B2c3"}) {
    AddCheckpoint(folder, name);
    fs::last_write_time(folder + "/" + name + "/manifest.json", old);
    fs::last_write_time(folder + "/" + name, old);
  }
  EXPECT_THAT(RemoveIncompleteCheckpoints(folder),
              UnorderedElementsAre("step-000000004.tmp.a1B2c3",
                                   "step-000000005.1.tmp.XyZ123"));
  EXPECT_TRUE(fs::exists(folder + "/step-000000003"));
  EXPECT_TRUE(fs::exists(folder + "/notes.tmp.a1B2c3"));
  EXPECT_THAT(RemoveIncompleteCheckpoints(folder), IsEmpty());
}

}  // namespace
}  // namespace tandem::step_folders_test
