// Messages of simulated NCCL match by order alone, in one queue for both
// directions: what other backends forgive is a deadlock, and is told.

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "core/backend/host_works.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/sim/nccl/deadlock.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "tests/core/sim/nccl/nccl_ranks.h"

namespace tandem::order_test {
namespace {

double First(const at::Tensor& tensor) {
  return tensor.cpu().const_data_ptr<float>()[0];
}

absl::Status Wait(absl::StatusOr<PendingCollective> started) {
  TANDEM_RETURN_IF_ERROR(started.status());
  return started->Wait();
}

// The error that rank 0 sees in the end.
absl::Status ErrorOf(int n,
                     const std::function<absl::Status(const NcclRank&)>& work) {
  absl::Status seen;
  ExpectOk(RunNcclRanks(n, [&](const NcclRank& rank) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(work(rank));
    const absl::Status end = rank.group.Synchronize();
    if (rank.rank == 0) seen = end;
    return Expect(!end.ok(), "it went well");
  }));
  return seen;
}

bool Says(const absl::Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

TEST(NcclMessages, MatchByOrderWhateverTheirTags) {
  ExpectOk(RunNcclRanks(2, [](const NcclRank& rank) -> absl::Status {
    const at::Tensor a = rank.Full(4, rank.rank == 0 ? 1 : 0);
    const at::Tensor b = rank.Full(4, rank.rank == 0 ? 2 : 0);
    if (rank.rank == 0) {
      TANDEM_RETURN_IF_ERROR(Wait(rank.group.StartSend(a, 1, /*tag=*/7)));
      return Wait(rank.group.StartSend(b, 1, /*tag=*/8));
    }
    TANDEM_RETURN_IF_ERROR(Wait(rank.group.StartReceive(a, 0, /*tag=*/8)));
    TANDEM_RETURN_IF_ERROR(Wait(rank.group.StartReceive(b, 0, /*tag=*/7)));
    return Expect(First(a) == 1 && First(b) == 2, "in order");
  }));
}

// Each receives before it sends: the pattern of a pipeline that posts receives
// ahead on the communicator that it sends on.
TEST(NcclMessages, ReceivesBeforeSendsOfOneCommunicatorAreADeadlock) {
  const absl::Status error =
      ErrorOf(2, [](const NcclRank& rank) -> absl::Status {
        const int other = 1 - rank.rank;
        TANDEM_RETURN_IF_ERROR(
            rank.group.StartReceive(rank.Full(4, 0), other, 0).status());
        return rank.group.StartSend(rank.Full(4, 1), other, 0).status();
      });
  EXPECT_TRUE(Says(error, "deadlock: rank 0 waits in \"group/0,1")) << error;
  EXPECT_TRUE(Says(error,
                   "for rank 1 (operation 1: receive of 16 bytes from "
                   "rank 1); rank 1 waits in \"group/0,1"))
      << error;
  EXPECT_TRUE(Says(error, "receive from rank 1 of group \"group\"")) << error;
}

TEST(NcclMessages, OfAGroupMayMeetInAnyOrder) {
  for (int n : {2, 3, 7}) {
    ExpectOk(RunNcclRanks(n, [n](const NcclRank& rank) -> absl::Status {
      std::vector<at::Tensor> came;
      std::vector<RankMessage> messages;
      for (int other = 0; other < n; ++other) {
        if (other == rank.rank) continue;
        came.push_back(rank.Full(4, -1));
        messages.push_back({false, came.back(), other, 0});
      }
      for (int other = 0; other < n; ++other) {
        if (other == rank.rank) continue;
        messages.push_back({true, rank.Full(4, rank.rank), other, 0});
      }
      TANDEM_RETURN_IF_ERROR(Wait(rank.group.StartMessages(messages)));
      for (size_t i = 0; i < came.size(); ++i) {
        TANDEM_RETURN_IF_ERROR(
            Expect(First(came[i]) == messages[i].peer, "whose it is"));
      }
      return absl::OkStatus();
    }));
  }
}

TEST(NcclMessages, OfDifferentSizesAreTold) {
  const absl::Status error =
      ErrorOf(2, [](const NcclRank& rank) -> absl::Status {
        return rank.rank == 0
                   ? rank.group.StartSend(rank.Full(4, 1), 1, 0).status()
                   : rank.group.StartReceive(rank.Full(5, 1), 0, 0).status();
      });
  EXPECT_TRUE(Says(error,
                   "send of 16 bytes to rank 1; rank 1 is at a receive "
                   "of 20 bytes"))
      << error;
}

TEST(NcclCollectives, OfDifferentKindsAreTold) {
  const absl::Status error =
      ErrorOf(3, [](const NcclRank& rank) -> absl::Status {
        const at::Tensor values = rank.Full(5, 1);
        return rank.rank == 1 ? rank.group.Broadcast(values, 0)
                              : rank.group.StartAllReduceSum(values).status();
      });
  // The first two that came are named, whichever these are.
  EXPECT_TRUE(Says(error, "is at operation 1 of \"group/0,1,2")) << error;
  EXPECT_TRUE(Says(error, "deadlock: rank ")) << error;
  EXPECT_TRUE(Says(error, "broadcast of 20 Byte, from rank 0")) << error;
  EXPECT_TRUE(Says(error, "all-reduce of 5 Float")) << error;
}

// Three that send around a ring, each to the next one, before they receive.
TEST(NcclMessages, ARingOfSendsIsADeadlock) {
  const absl::Status error =
      ErrorOf(3, [](const NcclRank& rank) -> absl::Status {
        const int next = (rank.rank + 1) % 3;
        TANDEM_RETURN_IF_ERROR(
            rank.group.StartSend(rank.Full(4, 1), next, 0).status());
        return rank.group.StartReceive(rank.Full(4, 1), (next + 1) % 3, 0)
            .status();
      });
  EXPECT_TRUE(Says(error, "rank 2 waits in \"group/0,1,2")) << error;
}

// Two devices of each rank, of which rank 1 names its second one first, as an
// order by the devices' names does that puts sim:10 before sim:9.
absl::Status BroadcastByName(const NcclRank& rank, absl::Status* seen) {
  const int first = 8 + 2 * rank.rank;
  std::vector<std::pair<int, int64_t>> sizes = {{first, 4}, {first + 1, 5}};
  if (rank.rank == 1) std::swap(sizes[0], sizes[1]);
  for (const auto& [device, size] : sizes) {
    std::vector<at::Tensor> tensors = {
        at::full({size}, 1, at::device(SimDevice(device)).dtype(at::kFloat))};
    PolledWork work(rank.backend().broadcast(tensors),
                    std::chrono::seconds(20));
    *seen = CatchTorch([&] { work.wait(); });
    if (!seen->ok()) return rank.world.Barrier();
  }
  return Expect(false, "it went well");
}

TEST(NcclDevices, WhoseCommunicatorsAreMadeInOrdersOfTheirOwnAreADeadlock) {
  std::vector<absl::Status> seen(2);
  ExpectOk(RunNcclRanks(2, [&](const NcclRank& rank) {
    return BroadcastByName(rank, &seen[static_cast<size_t>(rank.rank)]);
  }));
  for (const absl::Status& each : seen) {
    EXPECT_TRUE(Says(each,
                     "deadlock: rank 0 is at operation 1 of \"group/0,1 "
                     "#1\", broadcast of 4 Float, from rank 0"))
        << each;
    EXPECT_TRUE(Says(each, "rank 1 is at broadcast of 5 Float")) << each;
  }
}

// Tests of who waits for whom: circles that are deadlocks, and waits that are
// none.

using sim::CommunicatorWait;
using sim::DecodeRankWaits;
using sim::FindDeadlock;
using sim::RankWaits;
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

TEST(FindDeadlock, ThereIsNone) {
  const std::pair<const char*, std::map<int, RankWaits>> rows[] = {
      {"nobody is there", {}},
      {"nobody waits", Ranks({{}, {}})},
      {"a chain", Ranks({{For("a", {1})}, {For("a", {2})}, {}})},
      {"a short wait", Ranks({{For("a", {1})}, {For("a", {0}, 0.5)}})},
      {"others of one name in another communicator are not waited for",
       Ranks({{For("a", {1})}, {For("b", {0})}})},
      // All that rank 0 computes next waits behind a receive from a rank that
      // says nothing: it may be stopped, or slow.
      {"behind a rank that says nothing",
       Ranks({{ForInputs("replicas"), ForInputs("activations"),
               For("gradients", {1})},
              {}},
             /*waiting_threads=*/1)},
  };
  for (const auto& [name, ranks] : rows) {
    EXPECT_FALSE(FindDeadlock(ranks, 1).has_value()) << name;
  }
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
}  // namespace tandem::order_test
