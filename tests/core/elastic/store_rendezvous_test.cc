#include "core/elastic/store_rendezvous.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/store/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"

namespace tandem::store_rendezvous_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Order = NodeGroup::Order;

class StoreRendezvousTest : public testing::Test {
 protected:
  std::unique_ptr<NodeRendezvous> Node(int node, int ranks = 1) {
    StoreRendezvousOptions options;
    options.host = "127.0.0.1";
    options.port = served_.port;
    options.node = node;
    options.nnodes = 3;
    options.coordinator.ranks_per_node = ranks;
    options.coordinator.join_timeout = milliseconds(0);
    options.beat = milliseconds(20);
    return MeetAtStore(*RankCounts::Of({2, 3}, 1, nullptr), options);
  }

  HostedStore served_ = *ServeTcpStore("127.0.0.1", 0, seconds(10));
};

// Waits until this node is told of a group of which that holds.
bool Hears(const NodeRendezvous& node,
           const std::function<bool(const NodeGroup&)>& holds) {
  return Eventually([&] {
    const auto group = node.Group();
    return group.ok() && holds(*group);
  });
}

bool HearsAttempt(const NodeRendezvous& node, int attempt) {
  return Hears(node, [=](const NodeGroup& group) {
    return group.order == Order::kRun && group.attempt == attempt;
  });
}

bool HearsOrder(const NodeRendezvous& node, Order order) {
  return Hears(node,
               [=](const NodeGroup& group) { return group.order == order; });
}

TEST_F(StoreRendezvousTest, NodesComeGoAndEnd) {
  const auto node0 = Node(0);
  const auto node2 = Node(2);
  node0->Wait(0);
  node2->Wait(0);
  ASSERT_TRUE(HearsAttempt(*node0, 0));
  ASSERT_TRUE(HearsAttempt(*node2, 0));
  EXPECT_THAT(node2->Group()->nodes, ElementsAre(0, 2));
  node0->Run(0);
  node2->Run(0);

  const auto node1 = Node(1);
  node1->Wait(0);
  ASSERT_TRUE(HearsOrder(*node0, Order::kStopAtStep));
  ASSERT_TRUE(HearsOrder(*node2, Order::kStopAtStep));
  node0->Wait(1);
  node2->Wait(1);
  for (const auto* node : {&node0, &node1, &node2}) {
    ASSERT_TRUE(HearsAttempt(**node, 1));
    EXPECT_THAT((*node)->Group()->nodes, ElementsAre(0, 1, 2));
    (*node)->Run(1);
  }

  node2->Leave(/*done=*/false, "");
  node0->Wait(2);
  node1->Wait(2);
  ASSERT_TRUE(HearsAttempt(*node1, 2));
  EXPECT_THAT(node1->Group()->nodes, ElementsAre(0, 1));

  node0->Leave(/*done=*/false, "no more");
  ASSERT_TRUE(HearsOrder(*node1, Order::kEnd));
  EXPECT_EQ(node1->Group()->why, "no more");
}

TEST_F(StoreRendezvousTest, AnotherNumberOfRanksIsRefused) {
  const auto node0 = Node(0);
  const auto node1 = Node(1, /*ranks=*/2);
  ASSERT_TRUE(Eventually([&] { return !node1->Group().ok(); }));
  EXPECT_THAT(std::string(node1->Group().status().message()),
              HasSubstr("node 0 starts 1 ranks, this node 2"));
}

TEST_F(StoreRendezvousTest, TheLaterOfTwoLaunchersOfANodeStays) {
  const auto node0 = Node(0);
  const auto earlier = Node(1);
  node0->Wait(0);
  earlier->Wait(0);
  ASSERT_TRUE(HearsAttempt(*earlier, 0));
  const auto later = Node(1);
  ASSERT_TRUE(Eventually([&] { return !earlier->Group().ok(); }));
  EXPECT_THAT(std::string(earlier->Group().status().message()),
              HasSubstr("another launcher with --node_rank=1"));
  EXPECT_TRUE(later->Group().ok());
}

TEST_F(StoreRendezvousTest, ALostStoreIsToldOf) {
  const auto node1 = Node(1);
  ASSERT_TRUE(
      Eventually([&] { return served_.store->check({"tandem/elastic/1"}); }));
  served_ = HostedStore();
  ASSERT_TRUE(Eventually([&] { return !node1->Group().ok(); }));
  EXPECT_THAT(std::string(node1->Group().status().message()),
              HasSubstr("node 0's launcher, which serves the store at "
                        "127.0.0.1:"));
}

}  // namespace
}  // namespace tandem::store_rendezvous_test
