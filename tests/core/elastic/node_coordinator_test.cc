#include "core/elastic/node_coordinator.h"

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::node_coordinator_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

}  // namespace
}  // namespace tandem::node_coordinator_test
