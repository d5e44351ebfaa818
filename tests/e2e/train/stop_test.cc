// Jobs that are stopped or that lose a rank: a clear line, the right exit code,
// no half-written checkpoint, no process left.

#include <signal.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// Goes on until it is stopped.
Flags LongJob(const Flags& more = {}) {
  Flags flags = SmallJob({"--epochs=1000000", "--batch_size=12"});
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

class StopTest : public testing::TestWithParam<const char*> {};

TEST_P(StopTest, CtrlCStopsTheWholeJob) {
  const std::string folder = NewFolder("stop");
  Program program(
      kTrain, LongJob({GetParam(), "--save_dir=" + folder, "--save_every=20"}));
  ASSERT_TRUE(program.WaitForOutput("step     100/")) << program.Wait().err;
  program.Signal(SIGINT);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.err;
  EXPECT_THAT(result.err, HasSubstr("SIGINT"));
  EXPECT_TRUE(program.LivingProcesses().empty());
  const ProgramResult latest = RunProgram(kInspect, {folder});
  EXPECT_EQ(latest.exit_code, 0) << latest.err;
}

TEST_P(StopTest, SigtermStopsTheWholeJob) {
  Program program(kTrain, LongJob({GetParam()}));
  ASSERT_TRUE(program.WaitForOutput("step"));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait().exit_code, 128 + SIGTERM);
  EXPECT_TRUE(program.LivingProcesses().empty());
}

INSTANTIATE_TEST_SUITE_P(Ranks, StopTest,
                         testing::Values("--nproc_per_node=1",
                                         "--nproc_per_node=3"));

TEST(KilledRankTest, TheLauncherNamesItAndEndsTheOthers) {
  Program program(kTrain, LongJob({"--nproc_per_node=3"}));
  ASSERT_TRUE(program.WaitForOutput("step"));
  pid_t rank2 = 0;
  for (pid_t pid : program.LivingProcesses()) {
    const std::string environment =
        FileContents("/proc/" + std::to_string(pid) + "/environ");
    if (environment.find(std::string("\0RANK=2", 7)) != std::string::npos) {
      rank2 = pid;
    }
  }
  ASSERT_NE(rank2, 0);
  ASSERT_EQ(kill(rank2, SIGKILL), 0);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 2"));
  EXPECT_THAT(result.err, HasSubstr("SIGKILL"));
  EXPECT_TRUE(program.LivingProcesses().empty());
}

}  // namespace
}  // namespace tandem
