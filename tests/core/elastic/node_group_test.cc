#include "core/elastic/node_group.h"

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "core/elastic/node_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::node_group_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Order = NodeGroup::Order;
using Phase = NodeState::Phase;

// A job of three nodes at most, with one rank each, and a clock of its own.
class NodeCoordinatorTest : public testing::Test {
 protected:
  // All nodes that beat say so, and a second has passed.
  const NodeGroup& Second() {
    now_ += seconds(1);
    for (auto& [node, state] : states_) {
      if (state.phase != Phase::kLeft && !silent_.count(node)) ++state.beat;
    }
    return coordinator_.Decide(states_, now_);
  }
  // Node 0 was stopped, and has heard nobody.
  const NodeGroup& AfterSleepOf(seconds time) {
    now_ += time;
    return coordinator_.Decide(states_, now_);
  }
  const NodeGroup& Seconds(int n) {
    while (--n > 0) Second();
    return Second();
  }
  void Comes(int node) { states_[node] = {Phase::kWaiting, 0, 1, ++launcher_}; }
  void Says(int node, Phase phase, int attempt) {
    states_[node].phase = phase;
    states_[node].attempt = attempt;
    ++states_[node].beat;
  }
  // Has these nodes come, and run the first attempt.
  void RunWith(const std::set<int>& nodes) {
    for (const int node : nodes) Comes(node);
    Seconds(31);
    for (const int node : nodes) Says(node, Phase::kRunning, 0);
    const NodeGroup& group = Second();
    ASSERT_EQ(group.order, Order::kRun);
    ASSERT_EQ(group.nodes.size(), nodes.size());
  }

  std::map<int, NodeState> states_;
  std::set<int> silent_;
  NodeCoordinator coordinator_{*RankCounts::Of({2, 3}, 1, nullptr), {}};

 private:
  NodeCoordinator::TimePoint now_;
  int64_t launcher_ = 0;
};

TEST_F(NodeCoordinatorTest, AllAtOnceWhenAllHaveCome) {
  for (const int node : {0, 1, 2}) Comes(node);
  const NodeGroup& group = Second();
  EXPECT_EQ(group.order, Order::kRun);
  EXPECT_EQ(group.attempt, 0);
  EXPECT_THAT(group.nodes, ElementsAre(0, 1, 2));
}

TEST_F(NodeCoordinatorTest, EnoughOnesAfterTheJoinTimeout) {
  Comes(0);
  EXPECT_EQ(Seconds(100).order, Order::kForm);
  Comes(2);
  EXPECT_EQ(Seconds(30).order, Order::kForm);
  EXPECT_EQ(Second().order, Order::kRun);
  EXPECT_THAT(Second().nodes, ElementsAre(0, 2));
}

TEST_F(NodeCoordinatorTest, TooFewEndTheJob) {
  Comes(0);
  EXPECT_EQ(Seconds(600).order, Order::kForm);
  EXPECT_EQ(Second().order, Order::kEnd);
  EXPECT_THAT(Second().why,
              HasSubstr("too few nodes: within 600 s node 0 came"));
  Comes(1);
  EXPECT_EQ(Seconds(40).order, Order::kEnd);
}

TEST_F(NodeCoordinatorTest, ANodeThatIsGoneIsLeftOut) {
  RunWith({0, 1, 2});
  silent_.insert(1);
  EXPECT_EQ(Seconds(9).order, Order::kRun);
  Second();
  EXPECT_THAT(Second().why, HasSubstr("node 1 is gone"));
  EXPECT_EQ(Seconds(5).order, Order::kStop);
  Says(0, Phase::kWaiting, 1);
  EXPECT_EQ(Second().order, Order::kStop);  // node 2 still runs
  Says(2, Phase::kWaiting, 1);
  EXPECT_EQ(Second().order, Order::kRun);
  EXPECT_EQ(Second().attempt, 1);
  EXPECT_THAT(Second().nodes, ElementsAre(0, 2));
  EXPECT_EQ(Second().why, "without node 1");
}

TEST_F(NodeCoordinatorTest, WhoIsNotHeardOfWhileThisNodeSleepsIsNotGone) {
  RunWith({0, 1, 2});
  EXPECT_EQ(AfterSleepOf(seconds(3600)).order, Order::kRun);
  EXPECT_EQ(Seconds(20).order, Order::kRun);
  // It is, if it stays silent.
  silent_.insert(1);
  AfterSleepOf(seconds(3600));
  EXPECT_THAT(Seconds(10).why, HasSubstr("node 1 is gone"));
}

TEST_F(NodeCoordinatorTest, ADeathIsFollowedByTheSameNodes) {
  RunWith({0, 1, 2});
  Says(1, Phase::kWaiting, 1);
  EXPECT_EQ(Second().order, Order::kRun);  // the others find out themselves
  Says(0, Phase::kWaiting, 1);
  Says(2, Phase::kWaiting, 1);
  EXPECT_EQ(Second().attempt, 1);
  EXPECT_THAT(Second().nodes, ElementsAre(0, 1, 2));
}

TEST_F(NodeCoordinatorTest, ANodeThatLeavesDoesNotComeAgain) {
  RunWith({0, 1, 2});
  Says(2, Phase::kLeft, 0);
  Second();
  Says(0, Phase::kWaiting, 1);
  Says(1, Phase::kWaiting, 1);
  EXPECT_THAT(Second().nodes, ElementsAre(0, 1));
}

TEST_F(NodeCoordinatorTest, OneThatIsDoneStopsNobody) {
  RunWith({0, 1, 2});
  Says(2, Phase::kDone, 0);
  EXPECT_EQ(Seconds(100).order, Order::kRun);
  EXPECT_EQ(Second().attempt, 0);
}

TEST_F(NodeCoordinatorTest, ANodeThatComesHasTheOthersStopAtAStep) {
  RunWith({0, 1});
  Comes(2);
  const NodeGroup& group = Second();
  EXPECT_EQ(group.order, Order::kStopAtStep);
  EXPECT_EQ(group.why, "node 2 joined");
  EXPECT_EQ(Seconds(20).order, Order::kStopAtStep);
  Says(0, Phase::kWaiting, 1);
  Says(1, Phase::kWaiting, 1);
  EXPECT_EQ(Second().order, Order::kRun);
  EXPECT_THAT(Second().nodes, ElementsAre(0, 1, 2));
}

TEST_F(NodeCoordinatorTest, OneTooManyWaitsForAPlace) {
  RunWith({0, 1, 2});
  Comes(3);
  EXPECT_EQ(Seconds(1000).order, Order::kRun);
  Says(1, Phase::kLeft, 0);
  Second();
  Says(0, Phase::kWaiting, 1);
  Says(2, Phase::kWaiting, 1);
  EXPECT_THAT(Second().nodes, ElementsAre(0, 2, 3));
  EXPECT_EQ(Second().why, "without node 1, now with node 3");
}

TEST_F(NodeCoordinatorTest, ALauncherThatWasStartedAnewIsAnother) {
  RunWith({0, 1, 2});
  Comes(1);
  Second();
  EXPECT_EQ(Seconds(5).order, Order::kStop);
  Says(0, Phase::kWaiting, 1);
  Says(2, Phase::kWaiting, 1);
  EXPECT_THAT(Second().nodes, ElementsAre(0, 1, 2));
  EXPECT_EQ(Second().attempt, 1);
}

TEST_F(NodeCoordinatorTest, AnotherNumberOfRanksIsNotTaken) {
  Comes(0);
  Comes(1);
  Comes(2);
  states_[2].ranks = 4;
  EXPECT_THAT(Seconds(40).nodes, ElementsAre(0, 1));
}

TEST_F(NodeCoordinatorTest, TheEndIsTheEnd) {
  RunWith({0, 1});
  EXPECT_EQ(coordinator_.End("").order, Order::kEnd);
  EXPECT_EQ(Seconds(50).order, Order::kEnd);
}

TEST(NodeGroupTest, StatesComeBackAsTheyWereWritten) {
  NodeState state;
  state.phase = NodeState::Phase::kRunning;
  state.attempt = 7;
  state.ranks = 3;
  state.launcher = int64_t{1} << 40;
  state.beat = 12345;
  const auto read = DecodeNodeState(state.Encode());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->Encode(), state.Encode());
  EXPECT_EQ(read->launcher, int64_t{1} << 40);
}

TEST(NodeGroupTest, GroupsComeBackAsTheyWereWritten) {
  const NodeGroup group = {NodeGroup::Order::kStopAtStep,
                           4,
                           {0, 2, 11},
                           3,
                           "node 3: a word, and another"};
  const auto read = DecodeNodeGroup(group.Encode());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->order, NodeGroup::Order::kStopAtStep);
  EXPECT_EQ(read->attempt, 4);
  EXPECT_EQ(read->ranks_per_node, 3);
  EXPECT_THAT(read->nodes, ElementsAre(0, 2, 11));
  EXPECT_EQ(read->why, group.why);
  EXPECT_EQ(DecodeNodeGroup(NodeGroup().Encode())->attempt, -1);
}

TEST(NodeGroupTest, AnotherTextIsNeither) {
  for (const char* text : {"", "x", "1:91:0", "2:-11:0", "1:11:2"}) {
    EXPECT_FALSE(DecodeNodeState(text).has_value()) << text;
    EXPECT_FALSE(DecodeNodeGroup(text).has_value()) << text;
  }
  NodeGroup unordered;
  unordered.nodes = {2, 0};
  EXPECT_FALSE(DecodeNodeGroup(unordered.Encode()).has_value());
}

TEST(ChooseNodesTest, TakesAsManyAsTheJobCanHave) {
  const RankCounts counts = *RankCounts::Of({4, 6}, 2, nullptr);
  EXPECT_THAT(ChooseNodes({0, 1, 5, 6}, {}, 2, counts), ElementsAre(0, 1, 5));
  EXPECT_THAT(ChooseNodes({0, 6}, {}, 2, counts), ElementsAre(0, 6));
  EXPECT_THAT(ChooseNodes({0}, {}, 2, counts), IsEmpty());
  EXPECT_THAT(ChooseNodes({}, {}, 2, counts), IsEmpty());
}

TEST(ChooseNodesTest, WhoWasThereBeforeStays) {
  const RankCounts counts = *RankCounts::Of({1, 2}, 1, nullptr);
  EXPECT_THAT(ChooseNodes({0, 1, 2}, {0, 2}, 1, counts), ElementsAre(0, 2));
  EXPECT_THAT(ChooseNodes({1, 2}, {0, 2}, 1, counts), IsEmpty());
}

TEST(NamesOfNodesTest, ReadsAsASentence) {
  EXPECT_EQ(NamesOfNodes({}), "no nodes");
  EXPECT_EQ(NamesOfNodes({3}), "node 3");
  EXPECT_EQ(NamesOfNodes({0, 1}), "nodes 0 and 1");
  EXPECT_EQ(NamesOfNodes({0, 2, 5}), "nodes 0, 2 and 5");
}

}  // namespace
}  // namespace tandem::node_group_test
