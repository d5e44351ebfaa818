// What a launcher says: of its start, what ranks say, and of those that end.
// tests/core/launch/probe.cc is its program.

#include <arpa/inet.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/process/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Probe(std::vector<std::string> flags) {
  flags.insert(flags.begin(), std::getenv("PROBE"));
  return flags;
}

std::string Nproc(int n) { return absl::StrCat("--nproc_per_node=", n); }

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
