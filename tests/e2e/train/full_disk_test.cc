// A disk that is full, or that nobody may write to, in the middle of a job: a
// small file system in memory, of the test's own.

#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "core/checkpoint/folder/step_folders.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/network_hosts/own_namespaces.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FullDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why_not = TakeOwnNamespaces();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }
};

uintmax_t BytesIn(const std::string& folder) {
  uintmax_t bytes = 0;
  for (const auto& each :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (each.is_regular_file()) bytes += each.file_size();
  }
  return bytes;
}

// Room for one checkpoint and a half: the second one fills the disk.
TEST_F(FullDiskTest, TheSecondSaveEndsTheJobAndTheFirstIsGoneOnFrom) {
  const std::string roomy = NewFolder("roomy");
  RunJobForEvents(SmallJob({"--max_steps=2", "--save_dir=" + roomy}));
  const int one_and_a_half = static_cast<int>(BytesIn(roomy) * 3 / 2);
  const std::string straight =
      Fingerprint(RunJobForEvents(SmallJob({"--max_steps=4"})));
  for (const char* how : {"--noasync_save", "--async_save"}) {
    std::cout << "cell: " << how << "\n";
    const std::string disk = NewFolder("disk");
    ASSERT_EQ(MountMemory(disk, one_and_a_half), "");
    const ProgramResult full =
        RunProgram(kTrain, SmallJob({"--max_steps=4", "--save_every=2", how,
                                     "--save_dir=" + disk}));
    EXPECT_EQ(full.exit_code, 1) << full.err;
    EXPECT_THAT(full.err, AllOf(HasSubstr(disk + "/step-000000004"),
                                HasSubstr("No space left on device")));
    // Nothing half written takes room, and the job goes on elsewhere.
    EXPECT_EQ(BytesIn(disk), BytesIn(disk + "/step-000000002"));
    EXPECT_EQ(Fingerprint(RunJobForEvents(
                  SmallJob({"--max_steps=4", "--resume=" + disk}))),
              straight);
  }
  std::cout << "2 cells\n";
}

// It is not the user's mistake, unlike a folder that may not be written to: a
// job that is started again may find room.
TEST_F(FullDiskTest, OneThatIsFullBeforeTheJobBeginsFailsAndIsNotRefused) {
  const std::string disk = NewFolder("full");
  ASSERT_EQ(MountMemory(disk, 64 << 10), "");
  std::ofstream(disk + "/filler") << std::string(1 << 20, 'x');
  const std::string saved = disk + "/saved";
  const Flags job = SmallJob({"--max_steps=1", "--save_dir=" + saved});
  const ProgramResult full = RunProgram(kTrain, job);
  EXPECT_EQ(full.exit_code, 1) << full.err;
  EXPECT_THAT(full.err, AllOf(HasSubstr("--save_dir=" + saved + ": cannot "),
                              HasSubstr("No space left on device")));
  ASSERT_EQ(
      mount("none", disk.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const ProgramResult read_only = RunProgram(kTrain, job);
  EXPECT_EQ(read_only.exit_code, 2) << read_only.err;
  EXPECT_THAT(read_only.err,
              AllOf(HasSubstr("--save_dir=" + saved + ": cannot "),
                    HasSubstr("Read-only file system")));
}

// As a file system becomes whose device fails.
TEST_F(FullDiskTest, AFolderThatBecomesReadOnlyEndsTheJobWithItsName) {
  const std::string disk = NewFolder("disk");
  ASSERT_EQ(MountMemory(disk, 64 << 20), "");
  Program program(kTrain, SmallJob({"--epochs=1000000", "--save_every=40",
                                    "--keep_last=2", "--save_dir=" + disk}));
  // Any: the first may be deleted before this process is awake to see it.
  ASSERT_TRUE(Eventually([&] { return !CompleteCheckpoints(disk).empty(); }));
  // Refused while a file is open for writing: between two saves.
  while (mount("none", disk.c_str(), nullptr, MS_REMOUNT | MS_RDONLY,
               nullptr) != 0) {
    ASSERT_FALSE(program.LivingProcesses().empty());
  }
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr(disk + "/step-"),
                                HasSubstr("Read-only file system")));
}

}  // namespace
}  // namespace tandem
