// Tests of who waits for whom: circles that are deadlocks, and waits that are
// none.

#include "core/sim/nccl/deadlock.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace tandem::sim::deadlock_test {
namespace {

using State = CommunicatorWait::State;

CommunicatorWait For(const std::string& communicator, std::vector<int> peers,
                     double seconds = 5) {
  CommunicatorWait wait;
  wait.communicator = communicator;
  wait.state = State::kPeers;
  wait.operation = "receive of 4 bytes from rank " + std::to_string(peers[0]);
  wait.peers = std::move(peers);
  wait.seconds = seconds;
  return wait;
}

CommunicatorWait ForInputs(const std::string& communicator) {
  CommunicatorWait wait;
  wait.communicator = communicator;
  wait.state = State::kInputs;
  wait.operation = "barrier";
  wait.seconds = 5;
  return wait;
}

std::map<int, RankWaits> Ranks(std::vector<std::vector<CommunicatorWait>> all,
                               int waiting_threads = 0) {
  std::map<int, RankWaits> ranks;
  for (auto& each : all) {
    const int rank = static_cast<int>(ranks.size());
    ranks[rank] = {rank, waiting_threads, std::move(each)};
  }
  return ranks;
}

TEST(FindDeadlock, NobodyWaits) {
  EXPECT_FALSE(FindDeadlock({}, 1).has_value());
  EXPECT_FALSE(FindDeadlock(Ranks({{}, {}}), 1).has_value());
}

TEST(FindDeadlock, TwoThatReceiveFromEachOther) {
  const auto found =
      FindDeadlock(Ranks({{For("pipe", {1})}, {For("pipe", {0})}}), 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->is_certain);
  EXPECT_EQ(found->text,
            "rank 0 waits in \"pipe\" for rank 1 (operation 1: receive of 4 "
            "bytes from rank 1); rank 1 waits in \"pipe\" for rank 0 "
            "(operation 1: receive of 4 bytes from rank 0)");
}

TEST(FindDeadlock, ACircleOfSevenIsFoundWithoutThoseBeforeIt) {
  std::vector<std::vector<CommunicatorWait>> all = {{For("ring", {1})}};
  for (int rank = 1; rank < 8; ++rank) {
    all.push_back({For("ring", {rank == 7 ? 1 : rank + 1})});
  }
  const auto found = FindDeadlock(Ranks(all), 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->is_certain);
  EXPECT_EQ(found->text.find("rank 0 waits"), std::string::npos);
  EXPECT_NE(found->text.find("rank 7 waits in \"ring\" for rank 1"),
            std::string::npos);
}

TEST(FindDeadlock, AChainIsNone) {
  EXPECT_FALSE(FindDeadlock(Ranks({{For("a", {1})}, {For("a", {2})}, {}}), 1)
                   .has_value());
}

TEST(FindDeadlock, AShortWaitIsNone) {
  EXPECT_FALSE(FindDeadlock(Ranks({{For("a", {1})}, {For("a", {0}, 0.5)}}), 1)
                   .has_value());
}

TEST(FindDeadlock, OthersOfOneNameInAnotherCommunicatorAreNotWaitedFor) {
  EXPECT_FALSE(
      FindDeadlock(Ranks({{For("a", {1})}, {For("b", {0})}}), 1).has_value());
}

// Each has not started what the other one waits for, since it waits itself.
TEST(FindDeadlock, TwoOrdersOfTwoCommunicators) {
  const std::vector<std::vector<CommunicatorWait>> all = {{For("a", {1})},
                                                          {For("b", {0})}};
  const auto found = FindDeadlock(Ranks(all, /*waiting_threads=*/1), 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(found->is_certain);
  EXPECT_NE(found->text.find("\"a\" for rank 1"), std::string::npos);
  EXPECT_NE(found->text.find("\"b\" for rank 0"), std::string::npos);
}

TEST(FindDeadlock, BehindWhatADeviceComputes) {
  const auto found = FindDeadlock(
      Ranks({{For("a", {1}), ForInputs("b")}, {ForInputs("a"), For("b", {0})}}),
      1);
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(found->is_certain);
}

// All that rank 0 computes next waits behind a receive from a rank that says
// nothing: it may be stopped, or slow.
TEST(FindDeadlock, BehindARankThatSaysNothing) {
  EXPECT_FALSE(
      FindDeadlock(Ranks({{ForInputs("replicas"), ForInputs("activations"),
                           For("gradients", {1})},
                          {}},
                         /*waiting_threads=*/1),
                   1)
          .has_value());
}

TEST(FindDeadlock, RanksThatDoDifferentThings) {
  CommunicatorWait wait = For("a", {1});
  wait.number = 6;
  wait.operation = "all-reduce of 5 Float";
  wait.differs = "rank 1 is at broadcast of 5 Float, from rank 0";
  const auto found = FindDeadlock(Ranks({{wait}}), 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->is_certain);
  EXPECT_EQ(found->text,
            "rank 0 is at operation 7 of \"a\", all-reduce of 5 Float; rank 1 "
            "is at broadcast of 5 Float, from rank 0");
}

TEST(RankWaits, ComeBackFromTheirText) {
  const RankWaits all = {3, 2, {For("pipe \"0\"", {1, 5}), ForInputs("b")}};
  const RankWaits found = DecodeRankWaits(all.Encode());
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.waiting_threads, 2);
  ASSERT_EQ(found.communicators.size(), 2);
  EXPECT_EQ(found.communicators[0].communicator, "pipe \"0\"");
  EXPECT_EQ(found.communicators[0].peers, (std::vector<int>{1, 5}));
  EXPECT_EQ(found.communicators[1].state, State::kInputs);
}

TEST(RankWaits, OfNonsenseAreNone) {
  for (const char* text : {"", "7", "{", "{\"rank\": \"x\"}", "[]"}) {
    EXPECT_TRUE(DecodeRankWaits(text).communicators.empty()) << text;
  }
}

}  // namespace
}  // namespace tandem::sim::deadlock_test
