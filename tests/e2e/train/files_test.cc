// The files that a job writes and reads: without room, onto what is no file,
// from a file that was damaged.

#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/base/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As `ulimit -f`: no file of the job may grow beyond.
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
  RunJobForEvents(SmallJob(
      {"--max_steps=2", "--trace_step=1", "--trace_file=" + folder + "/null"}));
  EXPECT_TRUE(fs::is_symlink(folder + "/null"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

// As when ranks are started in a way that is not known, each for itself.
TEST(FilesTest, OneJobAtATimeHasAFolder) {
  const std::string folder = NewFolder("taken");
  const Flags job = SmallJob({"--epochs=1000", "--save_dir=" + folder});
  Program first(kTrain, job,
                FaultOf("point=before_optimizer,action=delay:0.1"));
  ASSERT_TRUE(first.WaitForOutput("loss")) << first.Wait().err;
  const ProgramResult second = RunProgram(kTrain, job);
  EXPECT_NE(second.exit_code, 0);
  EXPECT_THAT(second.err,
              HasSubstr("--save_dir=" + folder + ": another job has it"));
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait().exit_code, 128 + SIGTERM);
}

// As `train | head`, and onto a disk that is full.
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

}  // namespace
}  // namespace tandem
