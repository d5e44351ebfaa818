// How groups of ranks come about, where they listen, and which are refused.

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/launch/launch.h"
#include "core/store/store.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/comm/communicator_fixture.h"
#include "tests/core/testing/listening_sockets.h"
#include "tests/core/testing/on_threads.h"

namespace tandem::communicator_create_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// On every backend, but for what is Gloo's own.
class CommunicatorCreateTest : public CommunicatorFixture {};
class GlooCreateTest : public CommunicatorFixture {};

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorCreateTest,
                         ::testing::Values("shm", "gloo"), &NameOfBackend);
INSTANTIATE_TEST_SUITE_P(Backends, GlooCreateTest, ::testing::Values("gloo"),
                         &NameOfBackend);

TEST_P(CommunicatorCreateTest, SubgroupsWorkBesideEachOtherAndInTheGivenOrder) {
  ExpectOk(RunRanks(7, [](Communicator& world) -> absl::Status {
    const bool odd = world.rank() % 2 == 1;
    const std::vector<int> ranks =
        odd ? std::vector<int>{5, 1, 3} : std::vector<int>{0, 2, 4, 6};
    // The same name twice: groups of one axis share a name, and a group
    // may be made again.
    for (int time = 0; time < 2; ++time) {
      TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> half,
                              world.Subgroup(ranks, "half"));
      TANDEM_RETURN_IF_ERROR(
          Expect(ranks[half->rank()] == world.rank(), "rank"));
      at::Tensor sum = at::full({3}, world.rank(), at::kLong);
      TANDEM_RETURN_IF_ERROR(half->AllReduceSum(sum));
      TANDEM_RETURN_IF_ERROR(
          Expect(sum[2].item<int64_t>() == (odd ? 9 : 12), "sum"));
    }
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> alone,
                            world.Subgroup({world.rank()}, "alone"));
    TANDEM_RETURN_IF_ERROR(alone->Barrier());
    return world.Barrier();
  }));
}

TEST_P(CommunicatorCreateTest, GroupsOfAGroupCountItsRanks) {
  ExpectOk(RunRanks(3, [](Communicator& world) -> absl::Status {
    if (world.rank() == 0) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> pair,
                            world.Subgroup({2, 1}, "pair"));
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> turned,
                            pair->Subgroup({1, 0}, "turned"));
    // Messages call a rank by its number in the job.
    EXPECT_EQ(pair->NameOf(0), 2);
    EXPECT_EQ(turned->NameOf(turned->rank()), world.rank());
    return Expect(turned->rank() == world.rank() - 1, "rank");
  }));
}

TEST_P(CommunicatorCreateTest, OneRankOpensNoConnection) {
  ExpectOk(RunRanks(1, [](Communicator& world) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(world.Barrier());
    EXPECT_THAT(ListeningSockets(), IsEmpty());
    return Expect(world.process_group() == nullptr, "a process group");
  }));
}

TEST_P(GlooCreateTest, ListensOnLoopbackAlone) {
  ExpectOk(RunRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(world.Barrier());
    const std::vector<std::string> sockets = ListeningSockets();
    EXPECT_THAT(sockets, Not(IsEmpty()));
    EXPECT_THAT(sockets, Each(StartsWith("127.0.0.1:")));
    return world.Barrier();
  }));
}

TEST_P(GlooCreateTest, TheInterfaceMayBeNamed) {
  for (const char* place : {"lo", "127.0.0.1"}) {
    CommunicatorOptions options = WithTimeout(30000);
    options.interface = place;
    const absl::Status status = RunThreadRanks(
        2, [](Communicator& world) { return world.Barrier(); }, options);
    EXPECT_TRUE(status.ok()) << place << ": " << status;
  }
  CommunicatorOptions options = WithTimeout(5000);
  options.interface = "nosuchif0";
  EXPECT_THAT(
      RunThreadRanks(
          2, [](Communicator& world) { return world.Barrier(); }, options),
      Says("nosuchif0"));
}

TEST_P(GlooCreateTest, RanksOnSeveralHostsBindWhereTheyReachTheMaster) {
  CommunicatorOptions options = WithTimeout(30000);
  options.all_local = false;
  options.master_host = "127.0.0.1";
  absl::Status status = RunThreadRanks(
      2, [](Communicator& world) { return world.Barrier(); }, options);
  EXPECT_TRUE(status.ok()) << status;
  options.master_host = "";
  status = RunThreadRanks(
      2, [](Communicator& world) { return world.Barrier(); }, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

// Two ranks that meet as `where` says; each is a node of its own when `nnodes`
// is 2.
void ExpectWorldOfTwo(const Rendezvous& where, int nnodes) {
  const auto rank_main = [&](int rank) {
    Launch launch;
    launch.rank = rank;
    launch.world_size = 2;
    launch.nnodes = nnodes;
    launch.rendezvous = where;
    auto world = Communicator::ForLaunch(launch, WithTimeout(30000));
    ASSERT_TRUE(world.ok()) << world.status();
    EXPECT_EQ((*world)->name(), "world");
    at::Tensor tensor = at::ones({3});
    ExpectOk((*world)->AllReduceSum(tensor));
    EXPECT_EQ(tensor.sum().item<float>(), 6);
    EXPECT_THAT(ListeningSockets(), Each(StartsWith("127.0.0.1:")));
    // Rank 0 may serve the store and the other may still look at its sockets.
    EXPECT_TRUE((*world)->Barrier().ok());
  };
  std::thread other(rank_main, 1);
  rank_main(0);
  other.join();
}

TEST_P(CommunicatorCreateTest, AWorldIsMadeFromALaunch) {
  Rendezvous file;
  file.kind = Rendezvous::Kind::kFile;
  file.path = ::testing::TempDir() + "/world";
  ExpectWorldOfTwo(file, 1);

  auto served = ServeTcpStore("127.0.0.1", 0, std::chrono::seconds(30));
  ASSERT_TRUE(served.ok()) << served.status();
  Rendezvous tcp;
  tcp.kind = Rendezvous::Kind::kTcp;
  tcp.host = "127.0.0.1";
  tcp.port = served->port;
  tcp.served_by_launcher = true;
  for (const int nnodes : {1, 2}) {
    tcp.key_prefix = absl::StrCat("attempt_", nnodes);
    ExpectWorldOfTwo(tcp, nnodes);
  }
}

TEST_P(CommunicatorCreateTest, AWorldOfOneNeedsNoRendezvous) {
  auto world = Communicator::ForLaunch(Launch{}, WithTimeout(30000));
  ASSERT_TRUE(world.ok()) << world.status();
  EXPECT_EQ((*world)->size(), 1);
}

TEST_P(CommunicatorCreateTest, AnUnknownBackendListsTheKnown) {
  CommunicatorOptions options = WithTimeout(30000);
  options.backend = "pigeon";
  EXPECT_THAT(
      RunThreadRanks(
          2, [](Communicator& world) { return world.Barrier(); }, options),
      InvalidArgument("\"pigeon\"", "known are: shm, gloo"));
}

TEST_P(CommunicatorCreateTest, RanksThatNeverComeAreNamed) {
  auto store = NewHashStore(std::chrono::seconds(30));
  EXPECT_THAT(
      Communicator::Create(store, 1, 4, "world", WithTimeout(300)).status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               "group \"world\", rank 1 of 4",
               "ranks 0, 2, 3 did not come within 300ms"));
}

TEST_P(CommunicatorCreateTest, AGroupOfAUsedNameIsRefused) {
  auto store = NewHashStore(std::chrono::seconds(30));
  EXPECT_FALSE(Communicator::Create(store, 0, 2, "g", WithTimeout(50)).ok());
  EXPECT_EQ(
      Communicator::Create(store, 0, 2, "g", WithTimeout(50)).status().code(),
      absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(
      Communicator::Create(store, 2, 2, "h", WithTimeout(50)).status().code(),
      absl::StatusCode::kInvalidArgument);
}

// Messages from rank to rank, through every backend.

class CommunicatorMessagesTest : public testing::TestWithParam<std::string> {
 protected:
  static CommunicatorOptions Options() {
    CommunicatorOptions options;
    options.backend = GetParam();
    options.all_local = true;
    options.timeout = std::chrono::seconds(20);
    return options;
  }
};

absl::Status Send(Communicator& group, const at::Tensor& tensor, int to,
                  int tag) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective sent,
                          group.StartSend(tensor, to, tag));
  return sent.Wait();
}

absl::Status Receive(Communicator& group, const at::Tensor& tensor, int from,
                     int tag) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective coming,
                          group.StartReceive(tensor, from, tag));
  return coming.Wait();
}

TEST_P(CommunicatorMessagesTest, AreMatchedByTagAndThenByOrder) {
  ExpectOk(RunThreadRanks(
      3,
      [](Communicator& world) -> absl::Status {
        const int next = (world.rank() + 1) % 3;
        const int before = (world.rank() + 2) % 3;
        std::vector<PendingCollective> sent;
        for (int i = 0; i < 4; ++i) {
          TANDEM_ASSIGN_OR_RETURN(
              PendingCollective one,
              world.StartSend(at::full({5}, 10 * world.rank() + i), next,
                              /*tag=*/i / 2));
          sent.push_back(std::move(one));
        }
        for (int i : {2, 0, 3, 1}) {
          const at::Tensor got = at::zeros({5}, at::kLong);
          TANDEM_RETURN_IF_ERROR(Receive(world, got, before, i / 2));
          EXPECT_TRUE(got.equal(at::full({5}, 10 * before + i))) << got;
        }
        for (PendingCollective& each : sent) {
          TANDEM_RETURN_IF_ERROR(each.Wait());
        }
        return world.Barrier();
      },
      Options()));
}

// Larger than any buffer on the way, both ways at once.
TEST_P(CommunicatorMessagesTest, LargeOnesCrossEachOther) {
  ExpectOk(RunThreadRanks(
      2,
      [](Communicator& world) -> absl::Status {
        const int other = 1 - world.rank();
        const at::Tensor mine = at::arange(3'000'000).add_(world.rank());
        TANDEM_ASSIGN_OR_RETURN(PendingCollective sent,
                                world.StartSend(mine, other, 0));
        const at::Tensor got = at::zeros_like(mine);
        TANDEM_RETURN_IF_ERROR(Receive(world, got, other, 0));
        EXPECT_TRUE(got.equal(at::arange(3'000'000).add_(other)));
        return sent.Wait();
      },
      Options()));
}

TEST_P(CommunicatorMessagesTest, ThreadsOfARankMaySendAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kMessages = 25;
  ExpectOk(RunThreadRanks(
      2,
      [](Communicator& world) -> absl::Status {
        std::vector<absl::Status> results(kThreads);
        OnThreads(kThreads, [&](int tag) {
          for (int i = 0; i < kMessages; ++i) {
            at::Tensor tensor = at::full({7}, tag * 1000 + i);
            if (world.rank() == 0) {
              results[tag].Update(Send(world, tensor, 1, tag));
            } else {
              const at::Tensor expected = tensor.clone();
              tensor.zero_();
              results[tag].Update(Receive(world, tensor, 0, tag));
              EXPECT_TRUE(tensor.equal(expected));
            }
          }
        });
        for (const absl::Status& each : results) {
          TANDEM_RETURN_IF_ERROR(each);
        }
        return absl::OkStatus();
      },
      Options()));
}

TEST_P(CommunicatorMessagesTest, OneThatGivesUpEndsTheWaitOfTheOther) {
  absl::Status seen;
  ExpectOk(RunThreadRanks(
      2,
      [&](Communicator& world) -> absl::Status {
        if (world.rank() == 0) {
          world.Abort(absl::InternalError("the dog ate it"));
          return absl::OkStatus();
        }
        const at::Tensor got = at::zeros({5});
        auto coming = world.StartReceive(
            got, 0, 0, [] { return "activations of microbatch 3"; });
        seen = coming.ok() ? coming->Wait() : coming.status();
        return absl::OkStatus();
      },
      Options()));
  EXPECT_EQ(seen.code(), absl::StatusCode::kAborted) << seen;
  EXPECT_THAT(std::string(seen.message()), HasSubstr("the dog ate it"));
  EXPECT_THAT(std::string(seen.message()),
              HasSubstr("receive from rank 0 (activations of microbatch 3)"));
}

TEST_P(CommunicatorMessagesTest, RefusesWhatMakesNoSense) {
  ExpectOk(RunThreadRanks(
      2,
      [](Communicator& world) -> absl::Status {
        const at::Tensor tensor = at::zeros({4, 2});
        for (int peer : {-1, 2, world.rank()}) {
          EXPECT_EQ(world.StartSend(tensor, peer, 0).status().code(),
                    absl::StatusCode::kInvalidArgument);
          EXPECT_EQ(world.StartReceive(tensor, peer, 0).status().code(),
                    absl::StatusCode::kInvalidArgument);
        }
        const int other = 1 - world.rank();
        EXPECT_THAT(
            std::string(
                world.StartSend(tensor.t(), other, 0).status().message()),
            HasSubstr("dense and contiguous"));
        const at::Tensor conjugate = at::zeros({4}, at::kComplexFloat).conj();
        EXPECT_THAT(
            std::string(
                world.StartSend(conjugate, other, 0).status().message()),
            HasSubstr("call resolve_conj() and resolve_neg() first"));
        // Nothing is sent for nothing.
        EXPECT_TRUE(Send(world, at::zeros({0}), other, 0).ok());
        return world.Barrier();
      },
      Options()));
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorMessagesTest,
                         testing::Values("gloo", "shm"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::communicator_create_test
