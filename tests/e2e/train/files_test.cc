// The files that a job writes and reads: killed while it saves, without room,
// onto what is no file, from a file that was damaged.

#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> TemporariesIn(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.find(".tmp.") != std::string::npos) found.push_back(name);
  }
  return found;
}

TEST(FilesTest, WhatAKilledSaveLeftGoesWithTheNextStart) {
  const std::string folder = NewFolder("killed");
  const Flags job = {"--max_steps=3", "--save_every=2", "--save_dir=" + folder};
  ProgramOptions killed;
  killed.environment["TANDEM_FAULT"] = "point=before_commit,step=3,action=kill";
  EXPECT_EQ(RunProgram(kTrain, SmallJob(job), killed).exit_code, 128 + 9);
  EXPECT_EQ(TemporariesIn(folder).size(), 1u);
  // The last complete one is usable.
  Flags again = job;
  again.push_back("--resume=" + folder);
  RunJobForEvents(SmallJob(again));
  EXPECT_THAT(TemporariesIn(folder), IsEmpty());
  EXPECT_TRUE(fs::exists(folder + "/step-000000003.safetensors"));
}

// As `ulimit -f`: no file of the job may grow beyond.
TEST(FilesTest, AFileThatMayNotGrowIsAnErrorThatNamesIt) {
  const std::string folder = NewFolder("limited");
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit limit = old;
  limit.rlim_cur = 50 << 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const ProgramResult result =
      RunProgram(kTrain, SmallJob({"--max_steps=3", "--save_dir=" + folder}));
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(folder + "/step-000000003.safetensors"));
  EXPECT_THAT(result.err, HasSubstr("File too large"));
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(FilesTest, WhatIsNoFileIsWrittenToOrRefusedButNeverReplaced) {
  const std::string folder = NewFolder("no_file");
  fs::create_symlink("/dev/null", folder + "/null");
  RunJobForEvents(SmallJob(
      {"--max_steps=2", "--trace_step=1", "--trace_file=" + folder + "/null"}));
  EXPECT_TRUE(fs::is_symlink(folder + "/null"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_directory(folder + "/latest.safetensors");
  const ProgramResult result =
      RunProgram(kTrain, SmallJob({"--max_steps=2", "--save_dir=" + folder}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("cannot make latest.safetensors a link"));
}

TEST(FilesTest, ADamagedCheckpointIsRefusedByEveryLayout) {
  const std::string folder = NewFolder("damaged");
  RunJobForEvents(SmallJob({"--max_steps=3", "--save_dir=" + folder}));
  const std::string file = folder + "/step-000000003.safetensors";
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  bytes.seekg(-1000, std::ios::end);
  const char byte = static_cast<char>(bytes.peek() ^ 4);
  bytes.seekp(-1000, std::ios::end);
  bytes.put(byte);
  bytes.close();
  for (const char* strategy : {"auto", "pipeline"}) {
    const ProgramResult result = RunProgram(
        kTrain,
        SmallJob({"--max_steps=5", "--resume=" + folder, "--nproc_per_node=2",
                  std::string("--pipe=") + (*strategy == 'p' ? "2" : "1"),
                  std::string("--strategy=") + strategy}));
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("latest.safetensors is damaged"));
  }
  const ProgramResult inspected = RunProgram(kInspect, {file});
  EXPECT_EQ(inspected.exit_code, 0);
  EXPECT_THAT(inspected.out, HasSubstr("is damaged: the values of"));
}

}  // namespace
}  // namespace tandem
