// The files that a job writes and reads: without room, onto what is no file,
// from a file that was damaged. And a disk that is full, or that nobody may
// write to, in the middle of a job: a small file system in memory, of the
// test's own.

#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>

#include "absl/base/config.h"
#include "core/checkpoint/folder/step_folders.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/network_hosts/own_namespaces.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `ulimit -f` does so: no file of the job may grow beyond.
TEST(FilesTest, AFileThatMayNotGrowIsAnErrorThatNamesItAndLeavesTheLastSave) {
#ifdef ABSL_HAVE_THREAD_SANITIZER
  GTEST_SKIP() << "the sanitizer writes a longer file of its own at the start";
#endif
  const std::string folder = NewFolder("limited");
  RunJobForEvents(SmallJob({"--max_steps=1", "--save_dir=" + folder}));
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit limit = old;
  limit.rlim_cur = 50 << 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  for (const char* how : {"--noasync_save", "--async_save"}) {
    const ProgramResult result =
        RunProgram(kTrain, SmallJob({"--max_steps=3", how, "--resume=" + folder,
                                     "--save_dir=" + folder}));
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr(folder + "/step-000000003"));
    EXPECT_THAT(result.err, HasSubstr("File too large"));
    EXPECT_THAT(NamesIn(folder), ElementsAre("step-000000001"));
  }
  setrlimit(RLIMIT_FSIZE, &old);
  const ProgramResult latest = RunProgram(kInspect, {folder});
  EXPECT_EQ(latest.exit_code, 0) << latest.err;
}

TEST(FilesTest, WhatIsNoFileIsWrittenToOrRefusedButNeverReplaced) {
  const std::string folder = NewFolder("no_file");
  fs::create_symlink("/dev/null", folder + "/null");
  RunJobForEvents(SmallJob({"--max_steps=2", "--trace_steps=1",
                            "--trace_file=" + folder + "/null"}));
  EXPECT_TRUE(fs::is_symlink(folder + "/null"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

// Ranks that are started in an unknown way, each for itself, are such jobs.
TEST(FilesTest, OneJobAtATimeHasAFolder) {
  const std::string folder = NewFolder("taken");
  // Nothing is saved meanwhile, by which the second one would know it first.
  const Flags job = SmallJob(
      {"--epochs=1000", "--save_every_epochs=1000", "--save_dir=" + folder});
  Program first(kTrain, job,
                FaultOf("point=before_optimizer,action=delay:0.1"));
  ASSERT_TRUE(first.WaitForOutput("loss")) << first.Wait().err;
  const ProgramResult second = RunProgram(kTrain, job);
  EXPECT_NE(second.exit_code, 0);
  EXPECT_THAT(second.err,
              HasSubstr("--save_dir=" + folder + ": another job has it"));
  StopBySignal(first, SIGTERM);
}

// `train | head` has such an output, and so has a disk that is full.
TEST(FilesTest, AnOutputThatCannotBeWrittenEndsNoJobAndStderrSaysSo) {
  for (const bool several : {false, true}) {
    for (const auto& [output, why] :
         {std::pair("| head -n 1 >/dev/null", "Broken pipe"),
          std::pair(">/dev/full", "No space left on device")}) {
      const std::string folder = NewFolder("unheard");
      Flags flags =
          SmallJob({"--max_steps=3", "--save_dir=" + folder + "/saved"});
      if (several) flags.push_back("--nproc_per_node=2");
      std::string job = kTrain;
      for (const std::string& flag : flags) job += " " + flag;
      const std::string line = "{ " + job + "; echo $? >" + folder +
                               "/code; } 2>" + folder + "/err " + output;
      ASSERT_EQ(std::system(line.c_str()), 0) << line;
      const std::string err = FileContents(folder + "/err");
      EXPECT_EQ(FileContents(folder + "/code"), "0\n") << err;
      EXPECT_THAT(NamesIn(folder + "/saved"), Contains("step-000000003"));
      EXPECT_THAT(err, HasSubstr(std::string("what is printed goes nowhere (") +
                                 why + ")"));
    }
  }
}

TEST(FilesTest, ADamagedCheckpointIsRefusedByEveryLayout) {
  const std::string folder = NewFolder("damaged");
  RunJobForEvents(SmallJob({"--max_steps=3", "--save_dir=" + folder}));
  const std::string file = folder + "/step-000000003/rank-00000.safetensors";
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  bytes.seekg(-1000, std::ios::end);
  const char byte = static_cast<char>(bytes.peek() ^ 4);
  bytes.seekp(-1000, std::ios::end);
  bytes.put(byte);
  bytes.close();
  for (const char* strategy : {"auto", "pipeline"}) {
    // By its name; or as the only one of a folder, which is for a person to
    // mend before anybody starts again.
    for (const auto& [resume, exit_code] :
         {std::pair(folder + "/step-000000003", 1), std::pair(folder, 2)}) {
      const ProgramResult result = RunProgram(
          kTrain,
          SmallJob({"--max_steps=5", "--resume=" + resume, "--nproc_per_node=2",
                    std::string("--pipe=") + (*strategy == 'p' ? "2" : "1"),
                    std::string("--strategy=") + strategy}));
      EXPECT_EQ(result.exit_code, exit_code) << result.err;
      EXPECT_THAT(result.err, HasSubstr(file + " is damaged: the values of"));
    }
  }
  const ProgramResult inspected = RunProgram(kInspect, {folder});
  EXPECT_EQ(inspected.exit_code, 0);
  EXPECT_THAT(inspected.out, HasSubstr("is damaged: the values of"));
}

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

// A file system whose device fails becomes so.
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
