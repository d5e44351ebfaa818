// Ranks that die, and what their launcher makes of it, with real processes:
// tests/core/launch/probe.cc.

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/launch/probes.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct Death {
  const char* behaviour;
  int exit_code;
  std::vector<std::string> words;
};

class DeathTest : public ::testing::TestWithParam<Death> {};

TEST_P(DeathTest, IsReportedAndEndsTheOthers) {
  const std::string dir = MakeTestDir();
  RunningProgram job(
      Probe({Nproc(3), absl::StrCat("--pid_dir=", dir), GetParam().behaviour}));
  const std::vector<int> ranks = AwaitRanks(dir, 3);
  EXPECT_EQ(job.Wait(), GetParam().exit_code);
  for (const std::string& word : GetParam().words) {
    EXPECT_THAT(job.err(), HasSubstr(word));
  }
  EXPECT_THAT(job.err(), HasSubstr("stopping the 2 that still run"));
  EXPECT_THAT(job.err(), Not(HasSubstr("did not stop")));
  ExpectGone(ranks);
}

INSTANTIATE_TEST_SUITE_P(
    All, DeathTest,
    ::testing::Values(
        Death{"--behaviour=0:sleep,1:exit:3,2:sleep",
              3,
              {"tandem: rank 1 of 3 (pid ", "died: exit code 3",
               "[rank 1] about to exit\n[rank 1] for a reason\n"}},
        Death{"--behaviour=0:sleep,1:sleep,2:raise:9",
              137,
              {"rank 2 of 3", "killed by signal 9 (SIGKILL)",
               "    about to raise\n"}},
        Death{"--behaviour=0:sleep,1:raise:6,2:sleep",
              134,
              {"rank 1 of 3", "killed by signal 6 (SIGABRT)"}},
        Death{"--behaviour=0:raise:11,1:sleep,2:sleep",
              139,
              {"rank 0 of 3", "killed by signal 11 (SIGSEGV)",
               "    about to raise\n"}}));

TEST(LauncherDeathsTest, ARankThatCanBeLostStopsNobody) {
  const std::string dir = MakeTestDir();
  RunningProgram job(
      Probe({Nproc(3), absl::StrCat("--pid_dir=", dir), "--can_be_lost_from=1",
             "--behaviour=0:count:10,1:raise:9,2:exit:0"}));
  const std::vector<int> ranks = AwaitRanks(dir, 3);
  AwaitPid(absl::StrCat(dir, "/ready_", ranks[0]));
  ExpectGone({ranks[1], ranks[2]});
  kill(ranks[0], SIGUSR1);
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_THAT(
      job.err(),
      AllOf(HasSubstr("rank 1 of 3"),
            HasSubstr("killed by signal 9 (SIGKILL); the other ranks go on "
                      "without it"),
            HasSubstr("    about to raise\n"), Not(HasSubstr("stopping"))));
}

TEST(LauncherDeathsTest, TheLastThatCanBeLostAndAnyOtherStopTheRest) {
  for (const char* behaviour : {"--behaviour=0:sleep,1:exit:3,2:exit:3",
                                "--behaviour=0:exit:3,1:sleep,"
                                "2:sleep"}) {
    const std::string dir = MakeTestDir();
    RunningProgram job(Probe({Nproc(3), absl::StrCat("--pid_dir=", dir),
                              "--can_be_lost_from=1", behaviour}));
    const std::vector<int> ranks = AwaitRanks(dir, 3);
    EXPECT_EQ(job.Wait(), 3) << behaviour;
    EXPECT_THAT(job.err(), HasSubstr("stopping the ")) << behaviour;
    ExpectGone(ranks);
  }
}

TEST(LauncherDeathsTest, ARankThatIgnoresSigtermIsKilledAfterTheGracePeriod) {
  const std::string dir = MakeTestDir();
  RunningProgram job(
      Probe({Nproc(2), absl::StrCat("--pid_dir=", dir), "--grace_ms=200",
             "--behaviour=0:ignore:15,1:sleep"}));
  const std::vector<int> ranks = AwaitRanks(dir, 2);
  AwaitPid(absl::StrCat(dir, "/ready_", ranks[0]));
  kill(ranks[1], SIGKILL);
  EXPECT_EQ(job.Wait(), 137);
  EXPECT_THAT(job.err(),
              AllOf(HasSubstr("rank 1 of 2"), HasSubstr("rank 0 of 2 (pid "),
                    HasSubstr("did not stop and is killed")));
  ExpectGone(ranks);
}

TEST(LauncherDeathsTest, ADeadRanksChildrenGoWithIt) {
  const std::string dir = MakeTestDir();
  RunningProgram job(Probe(
      {Nproc(2), absl::StrCat("--pid_dir=", dir), "--behaviour=1:grandchild"}));
  const int grandchild = AwaitPid(dir + "/grandchild");
  EXPECT_EQ(job.Wait(), 4);
  ExpectGone({grandchild});
}

// Two ends that the launcher sees at the same time: the rank that exited first
// did so because of the other one, which a signal had killed.
TEST(LauncherDeathsTest, OfRanksThatEndAtOnceTheKilledOneIsNamed) {
  const std::string dir = MakeTestDir();
  RunningProgram job(Probe(
      {Nproc(3), absl::StrCat("--pid_dir=", dir),
       absl::StrCat("--behaviour=0:heed:", SIGUSR2, ",1:sleep,2:sleep")}));
  const std::vector<int> ranks = AwaitRanks(dir, 3);
  AwaitPid(absl::StrCat(dir, "/ready_", ranks[0]));
  const int launcher = job.process().pid();
  kill(launcher, SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return StateOf(launcher) == 'T'; }));
  kill(ranks[0], SIGUSR2);
  EXPECT_TRUE(Eventually([&] { return !IsRunning(ranks[0]); }));
  kill(ranks[1], SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !IsRunning(ranks[1]); }));
  kill(launcher, SIGCONT);
  EXPECT_EQ(job.Wait(), 128 + SIGKILL);
  EXPECT_THAT(job.err(), HasSubstr("killed by signal 9 (SIGKILL)"));
  EXPECT_THAT(job.err(),
              ContainsRegex("rank 1 of 3 \\(pid [0-9]+\\) died: killed"));
  EXPECT_THAT(
      job.err(),
      ContainsRegex("rank 0 of 3 \\(pid [0-9]+\\) then ended too: exit code"));
  ExpectGone(ranks);
}

}  // namespace
}  // namespace tandem
