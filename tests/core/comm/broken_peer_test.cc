// What the others see when one rank's process dies or freezes. Ranks are real
// processes, forked before this one has touched LibTorch.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/launch/launch.h"
#include "core/launch/open_store.h"
#include "core/store/store.h"
#include "tests/core/testing/forked_rank.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::chrono::milliseconds kLong = std::chrono::seconds(20);
constexpr std::chrono::milliseconds kShort = std::chrono::seconds(2);

using Store = absl::StatusOr<StorePtr>;

using Clock = std::chrono::steady_clock;

class BrokenPeerTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Backends, BrokenPeerTest,
                         ::testing::Values("shm", "gloo"),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

struct Loss {
  int victim;
  int signal;
  CommunicatorOptions options;  // of the group that loses the rank
};

Loss Lose(int victim, int signal, std::chrono::milliseconds timeout) {
  Loss loss{victim, signal, {}};
  loss.options.timeout = timeout;
  loss.options.backend = BrokenPeerTest::GetParam();
  return loss;
}

// The world meets, then the victim sends itself the signal, and the others wait
// for it in an all-reduce, from `*since`.
absl::Status MeetAndLose(const StorePtr& store, int rank, int size,
                         const Loss& loss, Clock::time_point* since) {
  CommunicatorOptions patient;
  patient.timeout = kLong;
  TANDEM_RETURN_IF_ERROR(
      Communicator::Create(store, rank, size, "meet", patient)
          .value()
          ->Barrier());
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> world,
      Communicator::Create(store, rank, size, "world", loss.options));
  TANDEM_RETURN_IF_ERROR(world->Barrier());
  // One rank may leave the barrier while another is still inside.
  store->set(absl::StrCat("left barrier/", rank), std::string("1"));
  if (rank == loss.victim) {
    for (int r = 0; r < size; ++r) {
      store->wait({absl::StrCat("left barrier/", r)});
    }
    raise(loss.signal);
  }
  *since = Clock::now();
  at::Tensor tensor = at::ones({997});
  return world->AllReduceSum(tensor,
                             [] { return "bucket 1 (fc.weight) of step 4"; });
}

// The same, and that the rank was done, its communicators destroyed, within
// 10 s of the timeout.
absl::Status LoseInTime(Store store, int rank, int size, const Loss& loss) {
  TANDEM_RETURN_IF_ERROR(store.status());
  Clock::time_point since;
  absl::Status status = MeetAndLose(*store, rank, size, loss, &since);
  if (Clock::now() - since > loss.options.timeout + std::chrono::seconds(10)) {
    return absl::InternalError("more than 10 s after the timeout");
  }
  return status;
}

TEST_P(BrokenPeerTest, AKilledRankIsUnavailableToTheOthers) {
  const std::string path = TestFile(".store");
  std::vector<std::unique_ptr<ForkedRank>> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(std::make_unique<ForkedRank>(r, [&, r] {
      return LoseInTime(OpenFileStore(path, r, 3, "", kLong), r, 3,
                        Lose(1, SIGKILL, kLong));
    }));
  }
  for (const int r : {0, 2}) {
    EXPECT_THAT(
        ranks[r]->Result(),
        AllOf(
            StartsWith("UNAVAILABLE"),
            HasSubstr(absl::StrCat("of group \"world\" on rank ", r, " of 3")),
            ContainsRegex("(not heard of: ranks? 1)|(rank 1 .pid [0-9]+. "
                          "died)")));
  }
  EXPECT_EQ(ranks[1]->Result(), "");
}

TEST_P(BrokenPeerTest, AFrozenRankIsNamedByAllWithWhatTheyWaitedFor) {
  const std::string path = TestFile(".store");
  std::vector<std::unique_ptr<ForkedRank>> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(std::make_unique<ForkedRank>(r, [&, r] {
      return LoseInTime(OpenFileStore(path, r, 3, "", kLong), r, 3,
                        Lose(2, SIGSTOP, kShort));
    }));
  }
  for (const int r : {0, 1}) {
    EXPECT_THAT(
        ranks[r]->Result(),
        AllOf(HasSubstr(absl::StrCat("all-reduce #2 (bucket 1 (fc.weight) of "
                                     "step 4) of group \"world\" on rank ",
                                     r, " of 3")),
              HasSubstr("not heard of: rank 2;"),
              HasSubstr(absl::StrCat("rank ", 1 - r, " failed in"))));
  }
}

// Rank 0 serves the store and freezes; what rank 1 says.
std::string FreezeTheServer(const Loss& loss) {
  int port_pipe[2];
  EXPECT_EQ(pipe(port_pipe), 0);
  ForkedRank server(0, [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(HostedStore served,
                            ServeTcpStore("127.0.0.1", 0, kLong));
    EXPECT_EQ(write(port_pipe[1], &served.port, sizeof(served.port)),
              ssize_t{sizeof(served.port)});
    return LoseInTime(served.store, 0, 2, loss);
  });
  ForkedRank client(1, [&]() -> absl::Status {
    int port = 0;
    EXPECT_EQ(read(port_pipe[0], &port, sizeof(port)), ssize_t{sizeof(port)});
    return LoseInTime(ConnectTcpStore("127.0.0.1", port, kLong), 1, 2, loss);
  });
  std::string result = client.Result();
  close(port_pipe[0]);
  close(port_pipe[1]);
  return result;
}

TEST_P(BrokenPeerTest, AFrozenRankThatServesTheStoreTimesOut) {
  EXPECT_THAT(FreezeTheServer(Lose(0, SIGSTOP, kShort)),
              AllOf(StartsWith("DEADLINE_EXCEEDED"),
                    HasSubstr("of group \"world\" on rank 1 of 2"),
                    HasSubstr("timeout 2s; the store, which rank 0 or the "
                              "launcher serves, does not answer")));
}

TEST_P(BrokenPeerTest, SoItDoesWhereStragglersAreWatched) {
  Loss loss = Lose(0, SIGSTOP, kShort);
  loss.options.straggler_warning = std::chrono::milliseconds(200);
  EXPECT_THAT(FreezeTheServer(loss),
              AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("bucket 1")));
}

// Rank 0 of 3 serves the store of a job; what the others say.
std::vector<std::string> LoseTheServer(const Loss& loss) {
  Launch launch;
  launch.world_size = 3;
  launch.rendezvous.kind = Rendezvous::Kind::kTcp;
  launch.rendezvous.host = "127.0.0.1";
  launch.rendezvous.port = FreePort();
  std::vector<std::unique_ptr<ForkedRank>> ranks;
  for (launch.rank = 0; launch.rank < 3; ++launch.rank) {
    ranks.push_back(std::make_unique<ForkedRank>(launch.rank, [&launch, &loss] {
      return LoseInTime(OpenStore(launch, kLong), launch.rank, 3, loss);
    }));
  }
  return {ranks[1]->Result(), ranks[2]->Result()};
}

TEST_P(BrokenPeerTest, RankZeroThatServesTheStoreAndFreezesIsNamed) {
  for (const int warning : {0, 200}) {
    Loss loss = Lose(0, SIGSTOP, kShort);
    loss.options.straggler_warning = std::chrono::milliseconds(warning);
    for (const std::string& said : LoseTheServer(loss)) {
      EXPECT_THAT(said,
                  AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("bucket 1"),
                        HasSubstr("; not heard of: rank 0 of the job, "
                                  "which serves the store: it does not "
                                  "answer (127.0.0.1:")));
    }
  }
}

TEST_P(BrokenPeerTest, RankZeroThatServesTheStoreAndDiesIsNamed) {
  for (const int warning : {0, 200}) {
    Loss loss = Lose(0, SIGKILL, kLong);
    loss.options.straggler_warning = std::chrono::milliseconds(warning);
    for (const std::string& said : LoseTheServer(loss)) {
      EXPECT_THAT(said, AllOf(StartsWith("UNAVAILABLE"), HasSubstr("bucket 1"),
                              HasSubstr("; not heard of: rank 0 of the job, "
                                        "which serves the store: its "
                                        "connection is lost (127.0.0.1:")));
    }
  }
}

TEST_P(BrokenPeerTest, SoItDoesWhereCollectivesAreChecked) {
  Loss loss = Lose(0, SIGSTOP, kShort);
  loss.options.check_collectives = true;
  EXPECT_THAT(FreezeTheServer(loss),
              AllOf(StartsWith("DEADLINE_EXCEEDED"),
                    HasSubstr("the store, over which ranks compare what they "
                              "start, did not answer; this rank started "
                              "all-reduce of Float [997] on cpu (bucket 1")));
}

// A program that has read all its batches, with communicators that nobody
// destroys. The others wait at the store, where no connection breaks.
TEST_P(BrokenPeerTest, WhoeverWaitsForARankThatExitedWithSuccessIsTold) {
  const std::string path = TestFile(".store");
  std::vector<std::unique_ptr<ForkedRank>> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(std::make_unique<ForkedRank>(r, [&, r]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const StorePtr store,
                              OpenFileStore(path, r, 3, "", kLong));
      CommunicatorOptions options;
      options.timeout = std::chrono::minutes(10);
      options.backend = GetParam();
      options.check_collectives = true;
      TANDEM_ASSIGN_OR_RETURN(
          const std::unique_ptr<Communicator> world,
          Communicator::Create(store, r, 3, "world", options));
      TANDEM_RETURN_IF_ERROR(world->Barrier());
      if (r == 1) exit(0);
      return world->Barrier();
    }));
  }
  for (const int r : {0, 2}) {
    EXPECT_THAT(ranks[r]->Result(),
                AllOf(StartsWith("UNAVAILABLE"), HasSubstr("rank 1")));
  }
}

}  // namespace
}  // namespace tandem
