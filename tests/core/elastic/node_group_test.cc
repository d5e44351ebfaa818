#include "core/elastic/node_group.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::node_group_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
