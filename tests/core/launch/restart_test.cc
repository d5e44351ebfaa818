// A launcher that starts its ranks again, and what it says, with real
// processes: tests/core/launch/probe.cc.

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/process/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/launch/probes.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// What the ranks said of a field, in the order in which they did.
std::vector<int> Said(const std::string& out, const std::string& field) {
  std::vector<int> values;
  for (absl::string_view line : absl::StrSplit(out, '\n', absl::SkipEmpty())) {
    const size_t brace = line.find('{');
    if (brace == absl::string_view::npos) continue;
    line.remove_prefix(brace);
    values.push_back(nlohmann::json::parse(line.begin(), line.end())[field]);
  }
  return values;
}

TEST(RestartTest, AllRanksStartAgainUntilNoneDies) {
  // No rank is stopped before it has said who it is.
  RunningProgram job(Probe({"--nproc_per_node=2", "--max_restarts=3",
                            absl::StrCat("--pid_dir=", MakeTestDir()),
                            "--behaviour=1:recover:2"}));
  EXPECT_EQ(job.Wait(), 0) << job.err();
  std::vector<int> attempts = Said(job.out(), "restart_count");
  std::sort(attempts.begin(), attempts.end());
  EXPECT_THAT(attempts, ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(Said(job.out(), "max_restarts"), testing::Each(3));
  EXPECT_THAT(job.err(),
              AllOf(HasSubstr("tandem: restart 1 of 3 in 0.001 s"),
                    HasSubstr("tandem: restart 2 of 3 in 0.002 s"),
                    Not(HasSubstr("restart 3")), Not(HasSubstr("gives up"))));
}

TEST(RestartTest, EachAttemptHasKeysOfItsOwn) {
  RunningProgram job(Probe(
      {"--nproc_per_node=2", "--max_restarts=1", "--behaviour=0:recover:1"}));
  EXPECT_EQ(job.Wait(), 0) << job.err();
  EXPECT_THAT(job.out(), AllOf(HasSubstr("tandem/attempt_0/"),
                               HasSubstr("tandem/attempt_1/")));
}

TEST(RestartTest, GivesUpWithTheCausesOfAll) {
  RunningProgram job(Probe(
      {"--nproc_per_node=3", "--max_restarts=1", "--behaviour=2:recover:9"}));
  EXPECT_EQ(job.Wait(), 7);
  EXPECT_THAT(
      job.err(),
      AllOf(HasSubstr("tandem: gives up after 1 restart; what ended each "
                      "attempt:\n    attempt 1 of 2, after "),
            HasSubstr("died: exit code 7: attempt 0\n"),
            HasSubstr("    attempt 2 of 2, after "),
            HasSubstr("died: exit code 7: attempt 1\n")));
}

TEST(RestartTest, OneRankIsLookedAfterToo) {
  RunningProgram job(Probe({"--max_restarts=1", "--behaviour=0:recover:1"}));
  EXPECT_EQ(job.Wait(), 0) << job.err();
  EXPECT_THAT(Said(job.out(), "restart_count"), ElementsAre(0, 1));
}

TEST(RestartTest, WhatWasRefusedIsNotTriedAgain) {
  RunningProgram job(Probe(
      {"--nproc_per_node=2", "--max_restarts=3", "--behaviour=1:exit:2"}));
  EXPECT_EQ(job.Wait(), 2);
  EXPECT_THAT(job.err(), Not(HasSubstr("restart ")));
}

// The values would be the same again.
TEST(RestartTest, WhatDivergesTwiceAtAStepIsNotTriedAThirdTime) {
  for (const std::string how : {"diverge", "overflow"}) {
    RunningProgram job(
        Probe({"--nproc_per_node=2", "--max_restarts=5",
               absl::StrCat("--behaviour=0:", how, ":3,1:sleep")}));
    EXPECT_EQ(job.Wait(), 3);
    EXPECT_THAT(job.err(),
                AllOf(HasSubstr("restart 1 of 5"),
                      HasSubstr("ended twice in the same way at the same step"),
                      Not(HasSubstr("restart 2 of 5"))));
  }
}

// Not so a connection, which a job loses at the same place of each attempt as
// long as a network has a fault.
TEST(RestartTest, WhatLosesConnectionsTwiceIsTriedAgain) {
  RunningProgram job(Probe({"--nproc_per_node=2", "--max_restarts=3",
                            "--behaviour=0:disconnect:3,1:sleep"}));
  EXPECT_EQ(job.Wait(), 3);
  EXPECT_THAT(job.err(), HasSubstr("gives up after 3 restarts"));
}

TEST(RestartTest, ASignalEndsAJobForGood) {
  const std::string dir = MakeTestDir();
  RunningProgram job(
      Probe({"--nproc_per_node=2", "--max_restarts=3",
             absl::StrCat("--pid_dir=", dir), "--behaviour=0:sleep,1:sleep"}));
  AwaitPid(dir + "/0");
  AwaitPid(dir + "/1");
  job.process().Signal(SIGTERM);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
  EXPECT_THAT(job.err(), Not(HasSubstr("restart ")));
}

// How a launcher would go on after a death.
struct WayToGoOn {
  const char* name;
  std::vector<std::string> flags;
};

class SignalledRankTest : public testing::TestWithParam<WayToGoOn> {
 protected:
  static std::vector<std::string> ThreeRanks(const std::string& rank1) {
    std::vector<std::string> flags =
        Probe({"--nproc_per_node=3",
               absl::StrCat("--behaviour=0:sleep,1:", rank1, ",2:sleep")});
    const std::vector<std::string>& way = GetParam().flags;
    flags.insert(flags.end(), way.begin(), way.end());
    return flags;
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, SignalledRankTest,
    testing::Values(WayToGoOn{"Restarts", {"--max_restarts=3"}},
                    WayToGoOn{"Elastic", {"--max_restarts=3", "--min_ranks=1"}},
                    WayToGoOn{"Replacements", {"--replacements=2"}},
                    WayToGoOn{"CanBeLost", {"--can_be_lost_from=1"}}),
    [](const auto& info) { return std::string(info.param.name); });

void ExpectStoppedByItself(RunningProgram& job, int signal) {
  EXPECT_EQ(job.Wait(), 128 + signal) << job.err();
  EXPECT_THAT(job.err(),
              AllOf(HasSubstr("was stopped by SIG"), Not(HasSubstr("restart ")),
                    Not(HasSubstr("is started again")),
                    Not(HasSubstr("go on without it"))));
}

// Such a rank has stopped with its job, whose others stop after the same step.
TEST_P(SignalledRankTest, OneThatStopsEndsAJobForGood) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    RunningProgram job(ThreeRanks(absl::StrCat("exit:", 128 + signal)));
    ExpectStoppedByItself(job, signal);
  }
}

// The state while a job is set up, before anybody asks for signals.
TEST_P(SignalledRankTest, OneThatASignalHasKilledEndsAJobForGood) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const std::string dir = MakeTestDir();
    std::vector<std::string> flags = ThreeRanks("sleep");
    flags.push_back(absl::StrCat("--pid_dir=", dir));
    RunningProgram job(flags);
    const int rank1 = AwaitPid(dir + "/1");
    ASSERT_NE(rank1, 0);
    kill(rank1, signal);
    ExpectStoppedByItself(job, signal);
  }
}

TEST(RestartTest, ASignalWhileADeathStopsTheOthersEndsAJobToo) {
  const std::string dir = MakeTestDir();
  RunningProgram job(Probe({"--nproc_per_node=2", "--max_restarts=3",
                            absl::StrCat("--pid_dir=", dir), "--grace_ms=2000",
                            "--behaviour=0:ignore:15,1:sleep"}));
  AwaitPid(absl::StrCat(dir, "/ready_", AwaitPid(dir + "/0")));
  kill(AwaitPid(dir + "/1"), SIGKILL);
  ASSERT_TRUE(job.AwaitError("stopping the 1 that still runs"));
  job.process().Signal(SIGTERM);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
  EXPECT_THAT(job.err(), Not(HasSubstr("restart ")));
}

TEST(RestartTest, ASignalEndsTheWaitForARestart) {
  RunningProgram job(
      Probe({"--nproc_per_node=2", "--max_restarts=3",
             "--restart_delay_ms=600000", "--behaviour=1:recover:1"}));
  ASSERT_TRUE(job.AwaitError("restart 1 of 3 in 60 s"));
  job.process().Signal(SIGINT);
  EXPECT_EQ(job.Wait(), 128 + SIGINT);
  EXPECT_THAT(job.err(), HasSubstr("stopped by SIGINT"));
}

TEST(RestartTest, WhatDoesNotGoTogetherIsRefused) {
  struct Refusal {
    std::vector<std::string> flags;
    std::string message;
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {{"--nproc_per_node=2", "--max_restarts=-1"}, "must be at least 0"},
           {{"--rank=0", "--world_size=2", "--max_restarts=1",
             "--dist_url=tcp://127.0.0.1:1"},
            "leave --rank out"},
           {{"--nproc_per_node=2", "--max_restarts=1",
             "--dist_url=file:///tmp/store"},
            "a store in a file is of one attempt"}}) {
    RunningProgram job(Probe(refusal.flags));
    EXPECT_EQ(job.Wait(), 2);
    EXPECT_THAT(job.err(), HasSubstr(refusal.message));
  }
}

// What a launcher says: of its start, what ranks say, and of those that end.

// The state after `ulimit -n`.
TEST(LauncherMessagesTest, TooFewOpenFilesAreNamedBeforeAnyRankStarts) {
  RunningProgram job(Probe({Nproc(8), "--open_files=32"}));
  EXPECT_EQ(job.Wait(), 1);
  EXPECT_EQ(job.out(), "");
  EXPECT_THAT(job.err(),
              AllOf(HasSubstr("cannot start the ranks"), HasSubstr("8 ranks"),
                    HasSubstr("ulimit -n allows 32")));
}

// A name server that does not answer, a network that is down.
TEST(LauncherMessagesTest, ASignalEndsALauncherThatWaitsForItsStore) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    RunningProgram job(Probe({Nproc(2), "--store_takes_long"}));
    ASSERT_TRUE(job.AwaitError("waiting for the store"));
    job.process().Signal(signal);
    EXPECT_EQ(job.Wait(), 128 + signal);
    EXPECT_EQ(job.out(), "");
    EXPECT_THAT(job.err(), HasSubstr("tandem: stopped by SIG"));
  }
}

TEST(LauncherMessagesTest, ATakenPortIsAClearError) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  const int port = ntohs(address.sin_port);
  RunningProgram job(Probe({Nproc(2), absl::StrCat("--master_port=", port)}));
  EXPECT_EQ(job.Wait(), 1);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("cannot start the ranks"),
                               HasSubstr(absl::StrCat("127.0.0.1:", port))));
  close(fd);
}

TEST(LauncherMessagesTest, AWrongFlagStartsNothing) {
  RunningProgram job(Probe({"--nproc_per_nod=2"}));
  EXPECT_EQ(job.Wait(), 2);
  EXPECT_EQ(job.out(), "");
  EXPECT_THAT(job.err(), HasSubstr("did you mean --nproc_per_node?"));
}

TEST(LauncherMessagesTest, RankZerosUnfinishedLinesPassThroughUnchanged) {
  RunningProgram job(Probe({Nproc(2), "--behaviour=0:bar"}));
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_EQ(job.err(), "10%\r20%\rdone");
  EXPECT_THAT(job.out(), HasSubstr("half a line"));
}

TEST(LauncherMessagesTest, IntoAFileRankZeroAndTheLauncherWriteBoth) {
  const std::string dir = MakeTestDir();
  std::vector<std::string> argv = Probe({Nproc(2), "--behaviour=0:bar"});
  argv.insert(argv.begin(), {"/bin/sh", "-c",
                             absl::StrCat(R"(exec "$0" "$@" >)", dir, "/out")});
  RunningProgram job(argv);
  EXPECT_EQ(job.Wait(), 0) << job.err();
  std::ifstream file(dir + "/out");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, AllOf(HasSubstr("half a line"), HasSubstr("[rank 1] {")));
}

// Causes of one line, or of several.
TEST(LauncherMessagesTest, WhatStandsAboveIsNotRepeated) {
  for (const char* action : {"refuse", "exit"}) {
    const std::string dir = MakeTestDir();
    RunningProgram job(
        Probe({Nproc(2), absl::StrCat("--pid_dir=", dir),
               absl::StrCat("--behaviour=0:sleep,1:", action, ":3")}));
    EXPECT_EQ(job.Wait(), 3);
    EXPECT_THAT(job.err(), AllOf(HasSubstr("for a reason\n"),
                                 HasSubstr("died: exit code 3"),
                                 Not(HasSubstr("error lines"))));
  }
}

TEST(LauncherMessagesTest, ADeathOnTheSecondNodeNamesNodeAndRank) {
  const std::string dir = MakeTestDir();
  const std::vector<std::string> common = {
      Nproc(2),
      "--nnodes=2",
      "--master_addr=127.0.0.1",
      absl::StrCat("--master_port=", FreePort()),
      absl::StrCat("--pid_dir=", dir),
      "--behaviour=0:sleep,1:sleep,2:sleep,"
      "3:exit:5"};
  std::vector<std::string> flags0 = common;
  flags0.push_back("--node_rank=0");
  std::vector<std::string> flags1 = common;
  flags1.push_back("--node_rank=1");
  RunningProgram node0(Probe(flags0));
  RunningProgram node1(Probe(flags1));
  EXPECT_EQ(node1.Wait(), 5);
  EXPECT_THAT(node1.err(), HasSubstr("rank 3 of 4 (node 1, local rank 1, pid"));
  node0.process().Signal(SIGTERM);
  EXPECT_EQ(node0.Wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace tandem
