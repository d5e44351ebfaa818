// The launcher with real processes: tests/core/launch/probe.cc.

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/environment.h"
#include "core/process/process_end.h"
#include "core/process/signal_thread.h"
#include "core/process/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/launch/probes.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What each rank said of itself, by rank; and that the prefixes are right.
std::vector<nlohmann::json> Places(const std::string& out) {
  std::vector<nlohmann::json> places(64);
  size_t count = 0;
  for (absl::string_view line : absl::StrSplit(out, '\n', absl::SkipEmpty())) {
    const absl::string_view whole = line;
    const size_t brace = line.find('{');
    if (brace == absl::string_view::npos) continue;
    line.remove_prefix(brace);
    const auto place = nlohmann::json::parse(line.begin(), line.end());
    const int rank = place["rank"];
    const std::string prefix =
        rank == 0 ? "" : absl::StrCat("[rank ", rank, "] ");
    EXPECT_EQ(whole.substr(0, brace), prefix);
    EXPECT_TRUE(places[rank].is_null()) << "rank " << rank << " twice";
    places[rank] = place;
    ++count;
  }
  places.resize(count);
  return places;
}

TEST(LauncherTest, StartsSevenRanksInTheirPlaces) {
  RunningProgram job(Probe({Nproc(7)}));
  EXPECT_EQ(job.Wait(), 0) << job.err();
  const auto places = Places(job.out());
  ASSERT_EQ(places.size(), 7u);
  for (int rank = 0; rank < 7; ++rank) {
    EXPECT_EQ(places[rank]["rank"], rank);
    EXPECT_EQ(places[rank]["local_rank"], rank);
    EXPECT_EQ(places[rank]["world_size"], 7);
    EXPECT_EQ(places[rank]["local_world_size"], 7);
    EXPECT_EQ(places[rank]["launcher"], "tandem");
    EXPECT_EQ(places[rank]["host"], "127.0.0.1");
    EXPECT_EQ(places[rank]["port"], places[0]["port"]);
    EXPECT_EQ(places[rank]["served_by_launcher"], true);
  }
}

TEST(LauncherTest, TakesHyphensAndUsesTheGivenPort) {
  const int port = FreePort();
  RunningProgram job(
      Probe({"--nproc-per-node", "2", absl::StrCat("--master-port=", port)}));
  EXPECT_EQ(job.Wait(), 0) << job.err();
  EXPECT_EQ(Places(job.out())[1]["port"], port);
}

TEST(LauncherTest, RanksMeetInAFileWithoutAStore) {
  RunningProgram job(Probe({Nproc(2), "--dist_url=file:///tmp/store"}));
  EXPECT_EQ(job.Wait(), 0) << job.err();
  const auto places = Places(job.out());
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[1]["path"], "/tmp/store");
  EXPECT_EQ(places[1]["served_by_launcher"], false);
}

TEST(LauncherTest, OnlyRankZeroSeesTheTerminal) {
  RunningProgram job(Probe({Nproc(2)}), {}, /*with_terminal=*/true);
  EXPECT_EQ(job.Wait(), 0);
  const auto places = Places(job.out());
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0]["stderr_is_terminal"], true);
  EXPECT_EQ(places[1]["stderr_is_terminal"], false);
}

TEST(LauncherTest, CtrlCReachesEveryRankOnce) {
  const std::string dir = MakeTestDir();
  RunningProgram job(Probe(
      {Nproc(2), absl::StrCat("--pid_dir=", dir),
       absl::StrCat("--behaviour=0:count:", SIGINT, ",1:count:", SIGINT)}));
  for (const int rank : AwaitRanks(dir, 2)) {
    AwaitPid(absl::StrCat(dir, "/ready_", rank));
  }
  kill(-job.process().pid(), SIGINT);  // as a terminal does: the whole group
  EXPECT_EQ(job.Wait(), 10);
  EXPECT_THAT(job.out(), AllOf(HasSubstr("\nsignals 1\n"),
                               HasSubstr("[rank 1] signals 1\n")));
  EXPECT_THAT(job.err(),
              AllOf(HasSubstr("stopped by SIGINT"), Not(HasSubstr("died"))));
}

TEST(LauncherTest, OtherSignalsArePassedOn) {
  const std::string dir = MakeTestDir();
  RunningProgram job(Probe(
      {Nproc(2), absl::StrCat("--pid_dir=", dir),
       absl::StrCat("--behaviour=0:count:", SIGUSR1, ",1:count:", SIGUSR1)}));
  for (const int rank : AwaitRanks(dir, 2)) {
    AwaitPid(absl::StrCat(dir, "/ready_", rank));
  }
  job.process().Signal(SIGUSR1);
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_THAT(job.out(), HasSubstr("[rank 1] signals 1\n"));
}

TEST(LauncherTest, CtrlZStopsTheRanksAndTheyGoOnWithTheLauncher) {
  const std::string dir = MakeTestDir();
  RunningProgram job(Probe({Nproc(2), absl::StrCat("--pid_dir=", dir),
                            "--behaviour=0:sleep,1:sleep"}));
  std::vector<int> all = AwaitRanks(dir, 2);
  all.push_back(job.process().pid());
  kill(job.process().pid(), SIGTSTP);
  for (const int pid : all) {
    EXPECT_TRUE(Eventually([&] { return StateOf(pid) == 'T'; })) << pid;
  }
  kill(job.process().pid(), SIGCONT);
  for (const int pid : all) {
    EXPECT_TRUE(Eventually([&] { return StateOf(pid) != 'T'; })) << pid;
  }
  job.process().Signal(SIGTERM);
  EXPECT_EQ(job.Wait(), 143);
  ExpectGone({all[0], all[1]});
}

TEST(LauncherTest, ASecondCtrlCKills) {
  const std::string dir = MakeTestDir();
  RunningProgram job(
      Probe({Nproc(2), absl::StrCat("--pid_dir=", dir), "--grace_ms=600000",
             "--behaviour=0:ignore:2,1:ignore:2"}));
  const std::vector<int> ranks = AwaitRanks(dir, 2);
  for (const int rank : ranks) AwaitPid(absl::StrCat(dir, "/ready_", rank));
  job.process().Signal(SIGINT);
  // Signals do not queue: the second must come after the first was handled.
  for (const int rank : ranks) AwaitPid(absl::StrCat(dir, "/ignored_", rank));
  std::this_thread::sleep_for(kSignalEcho);
  job.process().Signal(SIGINT);
  EXPECT_EQ(job.Wait(), 137);
  ExpectGone(ranks);
}

// timeout(1) signals its child and then its own process group.
TEST(LauncherTest, ASecondSignalThatFollowsAtOnceIsTheFirstOnes) {
  const std::string dir = MakeTestDir();
  RunningProgram job(
      Probe({Nproc(2), absl::StrCat("--pid_dir=", dir), "--grace_ms=600000",
             "--behaviour=0:count:2,1:count:2"}));
  const std::vector<int> ranks = AwaitRanks(dir, 2);
  for (const int rank : ranks) AwaitPid(absl::StrCat(dir, "/ready_", rank));
  for (int i = 0; i < 5; ++i) {
    job.process().Signal(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(job.Wait(), 10);
  EXPECT_THAT(job.err(), Not(HasSubstr("is killed")));
}

// Slurm does so when a job's time is over: no second one of the first.
TEST(LauncherTest, AnotherSignalIsPassedOnAndKillsNobody) {
  const std::string dir = MakeTestDir();
  RunningProgram job(Probe(
      {Nproc(2), absl::StrCat("--pid_dir=", dir), "--grace_ms=600000",
       absl::StrCat("--behaviour=0:ignore:", SIGUSR1, ",1:ignore:", SIGUSR1)}));
  const std::vector<int> ranks = AwaitRanks(dir, 2);
  for (const int rank : ranks) AwaitPid(absl::StrCat(dir, "/ready_", rank));
  job.process().Signal(SIGUSR1);
  for (const int rank : ranks) AwaitPid(absl::StrCat(dir, "/ignored_", rank));
  job.process().Signal(SIGTERM);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
  EXPECT_THAT(job.err(), Not(HasSubstr("is killed")));
}

// Whoever signals the launcher waits for it.
TEST(LauncherTest, OutputThatNobodyReadsHoldsNothingUp) {
  const std::string dir = MakeTestDir();
  SubprocessOptions options;
  options.program = std::getenv("PROBE");
  options.argv = Probe({Nproc(2), absl::StrCat("--pid_dir=", dir),
                        "--behaviour=0:flood:1000,1:flood:1000"});
  options.environment = Environment::OfProcess().ToStrings();
  options.out = SubprocessOptions::Stream::kPipe;
  options.err = SubprocessOptions::Stream::kPipe;
  auto job = Subprocess::Start(options);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::vector<int> ranks = AwaitRanks(dir, 2);
  for (const int rank : ranks) {
    ASSERT_NE(AwaitPid(absl::StrCat(dir, "/flooded_", rank)), 0);
  }
  job->Signal(SIGTERM);
  const std::optional<int> end = job->Wait(std::chrono::minutes(1));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(ShellExitCode(*end), 128 + SIGTERM);
  ExpectGone(ranks);
}

TEST(LauncherTest, ClosedStandardStreamsStandForNobody) {
  const std::string dir = MakeTestDir();
  std::vector<std::string> argv =
      Probe({Nproc(2), absl::StrCat("--pid_dir=", dir),
             "--behaviour=0:exit:0,1:exit:5"});
  argv.insert(argv.begin(),
              {"/bin/sh", "-c", R"(exec "$0" "$@" <&- >&- 2>&-)"});
  RunningProgram job(argv);
  EXPECT_EQ(job.Wait(), 5);
  EXPECT_EQ(job.err(), "");
}

TEST(LauncherTest, AKilledLauncherLeavesNothing) {
  const std::string dir = MakeTestDir();
  RunningProgram job(Probe({Nproc(3), absl::StrCat("--pid_dir=", dir),
                            "--behaviour=0:ignore:15,1:ignore:15,2:sleep"}));
  const std::vector<int> ranks = AwaitRanks(dir, 3);
  kill(job.process().pid(), SIGKILL);
  EXPECT_EQ(job.Wait(), 137);
  ExpectGone(ranks);
}

TEST(LauncherTest, TwoLaunchersAreTwoNodes) {
  const std::string port = absl::StrCat("--master_port=", FreePort());
  const auto node = [&](int node_rank) {
    return Probe({Nproc(2), "--nnodes=2", "--master_addr=127.0.0.1", port,
                  absl::StrCat("--node_rank=", node_rank)});
  };
  const std::string dir = MakeTestDir();
  auto flags1 = node(1);
  auto flags0 = node(0);
  // Node 0 serves the store: it must be there until all others have come.
  for (auto* flags : {&flags0, &flags1}) {
    flags->push_back(absl::StrCat("--pid_dir=", dir));
  }
  RunningProgram node1(flags1);  // first: it has to wait for the store
  RunningProgram node0(flags0);
  EXPECT_EQ(node0.Wait(), 0) << node0.err();
  EXPECT_EQ(node1.Wait(), 0) << node1.err();
  std::set<std::string> places;
  const auto all = Places(node0.out() + node1.out());
  ASSERT_EQ(all.size(), 4u);
  for (const auto& p : all) {
    places.insert(absl::StrCat(
        p["rank"].get<int>(), " ", p["node_rank"].get<int>(), " ",
        p["local_rank"].get<int>(), " of ", p["world_size"].get<int>()));
  }
  EXPECT_THAT(places, ::testing::ElementsAre("0 0 0 of 4", "1 0 1 of 4",
                                             "2 1 0 of 4", "3 1 1 of 4"));
}

}  // namespace
}  // namespace tandem
