// A launcher whose job goes on with fewer ranks, and launchers of its nodes,
// with real processes: tests/core/launch/probe.cc.

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/elastic/node_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/launch/group_files.h"
#include "tests/core/launch/probes.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// How often `text` stands in it.
int Count(const std::string& all, const std::string& text) {
  return static_cast<int>(
             std::vector<std::string>(absl::StrSplit(all, text)).size()) -
         1;
}

TEST(ElasticTest, GoesOnWithoutARankThatDiesAgainAndAgain) {
  RunningProgram job(Probe({"--nproc_per_node=3", "--min_ranks=1",
                            "--max_restarts=5", "--behaviour=2:exit:7"}));
  EXPECT_EQ(job.Wait(), 0) << job.err();
  // A rank that is stopped before it has said who it is, has not.
  EXPECT_EQ(Count(job.out(), "\"restart_count\":2"), 2) << job.out();
  EXPECT_EQ(Count(job.out(), "\"world_size\":2"), 2) << job.out();
  EXPECT_EQ(Count(job.out(), "\"local_world_size\":2"), 2) << job.out();
  EXPECT_THAT(
      job.err(),
      AllOf(HasSubstr("tandem: an elastic job, which can run on 1, 2 or 3"),
            HasSubstr("tandem: goes on with 2 ranks instead of 3: rank 2 was "
                      "the first to die in two attempts in a row"),
            HasSubstr("restart 2 of 5"), Not(HasSubstr("restart 3"))));
}

TEST(ElasticTest, WhatCannotBeStartedIsLeftOut) {
  int went_on = 0;
  for (int files = 8; files < 60 && went_on == 0; ++files) {
    RunningProgram job(
        Probe({"--nproc_per_node=7", "--min_ranks=2", "--max_restarts=1",
               absl::StrCat("--open_files=", files)}));
    const int code = job.Wait();
    const std::string why = "ranks instead of 7: no more than ";
    if (code == 0 && Count(job.err(), why) == 1) ++went_on;
  }
  EXPECT_EQ(went_on, 1);
}

TEST(ElasticTest, NotUnderTheLeastAndTheHistorySaysSo) {
  RunningProgram job(Probe({"--nproc_per_node=3", "--min_ranks=2",
                            "--max_restarts=4", "--behaviour=1:exit:7"}));
  EXPECT_EQ(job.Wait(), 7);
  EXPECT_THAT(
      job.err(),
      AllOf(HasSubstr("gives up after 4 restarts"),
            HasSubstr("    attempt 2 of 5, after "),
            HasSubstr("for a reason; goes on with 2 ranks instead of "
                      "3: rank 1 was the first to die"),
            HasSubstr("    attempt 4 of 5, after "),
            HasSubstr("for a reason; rank 1 was the first to die in two "
                      "attempts in a row, without a checkpoint in "
                      "between, but the job cannot run on fewer than 2 "
                      "(it can on 2 or 3)")));
}

TEST(ElasticTest, WhatDivergesTwiceGoesOnWithFewerRanksWhereItMay) {
  RunningProgram job(
      Probe({"--nproc_per_node=2", "--min_ranks=1", "--max_restarts=5",
             "--behaviour=1:diverge:3,0:sleep"}));
  ASSERT_TRUE(job.AwaitError("goes on with 1 rank instead of 2"));
  job.process().Signal(SIGTERM);
  job.Wait();
  EXPECT_THAT(job.err(), Not(HasSubstr("ended twice in the same way")));
}

TEST(ElasticTest, StartsAsManyAsAreAllowed) {
  RunningProgram job(Probe({"--nproc_per_node=3", "--min_ranks=1",
                            "--max_ranks=2", "--max_restarts=1"}));
  EXPECT_EQ(job.Wait(), 0) << job.err();
  EXPECT_EQ(Count(job.out(), "\"world_size\":2"), 2) << job.out();
}

TEST(ElasticTest, WhatDoesNotGoTogetherIsRefused) {
  struct Refusal {
    std::vector<std::string> flags;
    std::string message;
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {{"--nproc_per_node=2", "--min_ranks=1"}, "needs --max_restarts"},
           {{"--min_ranks=1"}, "needs --max_restarts"},
           {{"--rank=0", "--world_size=2", "--min_ranks=1",
             "--dist_url=tcp://127.0.0.1:1"},
            "needs --max_restarts"},
           {{"--nproc_per_node=2", "--max_ranks=1"}, "without --min_ranks"},
           {{"--nproc_per_node=2", "--min_ranks=3", "--max_restarts=1"},
            "--min_ranks=3 is too many"},
           {{"--nproc_per_node=2", "--min_ranks=0", "--max_restarts=1"},
            "must be at least 1"}}) {
    RunningProgram job(Probe(refusal.flags));
    EXPECT_EQ(job.Wait(), 2);
    EXPECT_THAT(job.err(), HasSubstr(refusal.message));
    EXPECT_EQ(Count(job.err(), "\n"), 1) << job.err();
  }
}

// Launchers of nodes hear of each other what the test says, when it says so.

using Order = NodeGroup::Order;
using Nodes = std::vector<int>;

class ElasticNodesTest : public testing::Test {
 protected:
  // Node `node` of up to three, of a rank each. Later flags override earlier
  // ones.
  std::vector<std::string> Node(int node,
                                const std::vector<std::string>& more = {}) {
    std::vector<std::string> flags = {
        std::getenv("PROBE"),
        "--nnodes=3",
        "--nproc_per_node=1",
        absl::StrCat("--node_rank=", node),
        "--master_addr=127.0.0.1",
        absl::StrCat("--master_port=", port_),
        "--min_ranks=1",
        "--max_restarts=3",
        absl::StrCat("--pid_dir=", folder_),
        absl::StrCat("--group_dir=", folder_),
        "--behaviour=0:together,1:together,2:together"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  void Tell(const Nodes& nodes, const NodeGroup& group) {
    for (const int node : nodes) GroupFiles::Tell(folder_, node, group);
  }
  bool Says(int node, const std::string& word) {
    return Eventually(
        [&] { return GroupFiles::LastWord(folder_, node) == word; });
  }
  // The process of that rank of the first attempt, which can be signalled; 0:
  // it has not come.
  int ReadyRank(int rank) {
    const int pid = AwaitPid(absl::StrCat(folder_, "/", rank));
    return AwaitPid(absl::StrCat(folder_, "/ready_", pid)) == pid ? pid : 0;
  }

  std::string folder_ = MakeTestDir();
  int port_ = FreePort();
};

class JoiningTest : public ElasticNodesTest,
                    public testing::WithParamInterface<Nodes> {};

// Ranks agree on a step, and end together, before some launchers know why.
TEST_P(JoiningTest, EndsNobodyWhoeverHearsOfIt) {
  RunningProgram node0(Node(0));
  RunningProgram node1(Node(1));
  RunningProgram node2(Node(2));
  Tell({0, 1}, {Order::kRun, 0, {0, 1}, 1, ""});
  for (const int rank : {0, 1}) ASSERT_NE(ReadyRank(rank), 0);
  Tell(GetParam(), {Order::kStopAtStep, 0, {0, 1}, 1, "node 2 joined"});
  for (const int node : {0, 1}) EXPECT_TRUE(Says(node, "waits for 1")) << node;
  Tell({0, 1, 2}, {Order::kRun, 1, {0, 1, 2}, 1, "now with node 2"});
  for (RunningProgram* node : {&node0, &node1, &node2}) {
    EXPECT_EQ(node->Wait(), 0) << node->err();
    EXPECT_THAT(node->err(),
                AllOf(HasSubstr("attempt 2 has 3 ranks"),
                      Not(HasSubstr("restart 1 of")), Not(HasSubstr("died"))));
  }
}

INSTANTIATE_TEST_SUITE_P(All, JoiningTest,
                         testing::Values(Nodes{0, 1}, Nodes{1}, Nodes{0}),
                         [](const auto& info) {
                           return info.param.size() == 2
                                      ? std::string("Both")
                                      : absl::StrCat("Node", info.param[0]);
                         });

TEST_F(ElasticNodesTest, OneThatIsStoppedLeavesAndTheOthersGoOn) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    folder_ = MakeTestDir();
    port_ = FreePort();
    RunningProgram node0(Node(0));
    RunningProgram node1(Node(1));
    Tell({0, 1}, {Order::kRun, 0, {0, 1}, 1, ""});
    for (const int rank : {0, 1}) ASSERT_NE(ReadyRank(rank), 0);
    node1.process().Signal(signal);
    EXPECT_EQ(node1.Wait(), 128 + signal) << node1.err();
    EXPECT_EQ(GroupFiles::LastWord(folder_, 1), "has left");
    EXPECT_TRUE(Says(0, "waits for 1"));
    Tell({0}, {Order::kRun, 1, {0}, 1, "without node 1"});
    EXPECT_EQ(node0.Wait(), 0) << node0.err();
    EXPECT_THAT(node0.err(), AllOf(HasSubstr("attempt 2 has 1 rank on node 0"),
                                   Not(HasSubstr("and the job with it"))));
  }
}

// Nobody else could have sent it.
TEST_F(ElasticNodesTest, ASignalToARankOfTheOnlyNodeEndsTheJob) {
  RunningProgram node0(Node(0));
  Tell({0}, {Order::kRun, 0, {0}, 1, ""});
  const int rank = ReadyRank(0);
  ASSERT_NE(rank, 0);
  kill(rank, SIGTERM);
  EXPECT_EQ(node0.Wait(), 128 + SIGTERM);
  EXPECT_THAT(node0.err(), HasSubstr("and the job with it"));
}

// Which has agreed on nothing with the other node's, that lose it.
TEST_F(ElasticNodesTest, ARankThatASignalHasKilledIsADeath) {
  const std::string behaviour = "--behaviour=0:together,1:sleep";
  RunningProgram node0(Node(0, {behaviour}));
  RunningProgram node1(Node(1, {behaviour}));
  Tell({0, 1}, {Order::kRun, 0, {0, 1}, 1, ""});
  ASSERT_NE(ReadyRank(0), 0);
  const int rank1 = AwaitPid(folder_ + "/1");
  ASSERT_NE(rank1, 0);
  kill(rank1, SIGTERM);
  EXPECT_TRUE(Says(1, "waits for 1"));
  Tell({0, 1}, {Order::kEnd, 0, {0, 1}, 1, "the test is over"});
  EXPECT_EQ(node1.Wait(), 128 + SIGTERM);
  EXPECT_THAT(node1.err(), HasSubstr("died: killed by signal 15"));
  EXPECT_EQ(node0.Wait(), 128 + SIGTERM);
}

TEST_F(ElasticNodesTest, ADeathWhileRanksMakeRoomStopsTheOthers) {
  RunningProgram node0(Node(0, {"--nproc_per_node=2", "--min_ranks=2",
                                "--behaviour=0:ignore:10,1:ignore:10"}));
  Tell({0}, {Order::kRun, 0, {0}, 2, ""});
  const Nodes ranks = {ReadyRank(0), ReadyRank(1)};
  for (const int rank : ranks) ASSERT_NE(rank, 0);
  Tell({0}, {Order::kStopAtStep, 0, {0}, 2, "node 1 joined"});
  for (const int rank : ranks) {
    ASSERT_EQ(AwaitPid(absl::StrCat(folder_, "/ignored_", rank)), rank);
  }
  kill(ranks[1], SIGKILL);
  EXPECT_TRUE(Says(0, "waits for 1"));
  Tell({0}, {Order::kEnd, 0, {0}, 2, "the test is over"});
  EXPECT_EQ(node0.Wait(), 128 + SIGKILL);
  EXPECT_THAT(
      node0.err(),
      AllOf(HasSubstr("node 1 joined: this node's ranks stop after a step"),
            HasSubstr("died: killed by signal 9"),
            HasSubstr("stopping the 1 that still runs on this node"),
            HasSubstr("restart 1 of 3")));
}

TEST_F(ElasticNodesTest, RanksThatMakeRoomHaveTimeToSave) {
  RunningProgram node0(
      Node(0, {"--grace_ms=200", "--behaviour=0:together:2000"}));
  Tell({0}, {Order::kRun, 0, {0}, 1, ""});
  ASSERT_NE(ReadyRank(0), 0);
  Tell({0}, {Order::kStopAtStep, 0, {0}, 1, "node 1 joined"});
  EXPECT_TRUE(Says(0, "waits for 1"));
  Tell({0}, {Order::kRun, 1, {0}, 1, "without node 1"});
  EXPECT_EQ(node0.Wait(), 0) << node0.err();
  EXPECT_THAT(node0.err(), AllOf(Not(HasSubstr("is killed")),
                                 Not(HasSubstr("restart 1 of"))));
}

TEST_F(ElasticNodesTest, ButNotForEver) {
  RunningProgram node0(
      Node(0, {"--room_grace_ms=200", "--behaviour=0:ignore:10"}));
  Tell({0}, {Order::kRun, 0, {0}, 1, ""});
  ASSERT_NE(ReadyRank(0), 0);
  Tell({0}, {Order::kStopAtStep, 0, {0}, 1, "node 1 joined"});
  EXPECT_TRUE(Says(0, "waits for 1"));
  Tell({0}, {Order::kEnd, 0, {0}, 1, "the test is over"});
  EXPECT_EQ(node0.Wait(), 128 + SIGKILL);
  EXPECT_THAT(node0.err(), HasSubstr("did not stop and is killed"));
}

}  // namespace
}  // namespace tandem
