// A rank that fails while groups are made: the others end soon and name it,
// unless its group has a fate of its own. And what making a group costs. Ranks
// are processes, forked before this one has touched LibTorch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/health/job_notes.h"
#include "core/instrument/fault_point.h"
#include "core/launch/launch.h"
#include "core/store/store.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/testing/forked_rank.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRanks = 3;
constexpr int kCulprit = 1;
// Longer than a rank may live: nothing here ends by timeout.
constexpr std::chrono::milliseconds kLong = std::chrono::minutes(10);

CommunicatorOptions Options(const std::string& backend) {
  CommunicatorOptions options;
  options.timeout = kLong;
  options.backend = backend;
  return options;
}

Launch JobOnFreePort() {
  Launch launch;
  launch.world_size = launch.local_world_size = kRanks;
  launch.rendezvous.kind = Rendezvous::Kind::kTcp;
  launch.rendezvous.host = "127.0.0.1";
  launch.rendezvous.port = FreePort();
  return launch;
}

// What each rank of a job says whose ranks make a world and two subgroups.
// Rank 0 serves the store. `fault`: as TANDEM_FAULT has it.
class GroupCreationTest : public testing::TestWithParam<const char*> {
 protected:
  void Start(const std::string& fault) {
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks_.push_back(std::make_unique<ForkedRank>(rank, [this, rank, fault] {
        ArmFaults(ParseFaults(fault).value());
        SetFaultContext(rank, 0);
        Launch mine = launch_;
        mine.rank = rank;
        return MakeGroups(mine);
      }));
    }
  }
  void ExpectOthersSay(const std::string& what) {
    for (const int rank : {0, 2}) {
      EXPECT_THAT(ranks_[rank]->Result(),
                  AllOf(StartsWith("ABORTED"),
                        HasSubstr("the job has failed: "), HasSubstr(what)));
    }
  }

  static absl::Status MakeGroups(const Launch& launch) {
    TANDEM_ASSIGN_OR_RETURN(
        std::unique_ptr<Communicator> world,
        Communicator::ForLaunch(launch, Options(GetParam())));
    TANDEM_ASSIGN_OR_RETURN(auto first, world->Subgroup({0, 1, 2}, "first"));
    const absl::Status between = FaultPoint("between groups");
    if (!between.ok()) {
      world->Abort(between);
      return between;
    }
    TANDEM_ASSIGN_OR_RETURN(auto second, world->Subgroup({2, 1, 0}, "second"));
    return second->Barrier();
  }

  const Launch launch_ = JobOnFreePort();
  std::vector<std::unique_ptr<ForkedRank>> ranks_;
};

TEST_P(GroupCreationTest, OneThatFailsBeforeItMeetsTheOthersIsNamed) {
  Start(absl::StrCat("point=meet,rank=", kCulprit, ",action=fail"));
  ExpectOthersSay("rank 1 gave up: group \"world\", rank 1 of 3: a fault");
}

TEST_P(GroupCreationTest, OneThatFailsBeforeItConnectsIsNamed) {
  Start(absl::StrCat("point=connect,rank=", kCulprit, ",action=fail"));
  ExpectOthersSay("rank 1 gave up: group \"world\", rank 1 of 3: a fault");
}

TEST_P(GroupCreationTest, OneThatFailsBetweenTwoGroupsIsNamed) {
  Start(absl::StrCat("point=between groups,rank=", kCulprit, ",action=fail"));
  ExpectOthersSay("rank 1 gave up: a fault");
}

// A launcher of another node tells it.
TEST_P(GroupCreationTest, OneThatDiesIsNamedByItsLauncher) {
  Start(absl::StrCat("point=connect,rank=", kCulprit, ",action=kill"));
  EXPECT_EQ(ranks_[kCulprit]->Result(), "");  // it has ended
  Launch dead = launch_;
  dead.rank = dead.node_rank = kCulprit;
  const absl::Status told = ReportFailureToJob(dead, FailureNote::Kind::kDied,
                                               "killed by signal 9 (SIGKILL)",
                                               std::chrono::seconds(20));
  EXPECT_TRUE(told.ok()) << told;
  ExpectOthersSay("rank 1 died: killed by signal 9 (SIGKILL)");
}

INSTANTIATE_TEST_SUITE_P(Backends, GroupCreationTest,
                         testing::Values("shm", "gloo"));

// What a barrier of `rest` says once that group has ended, for which this waits
// half a minute at most: before a watch has looked, barriers are whole.
absl::Status EndOf(Communicator& rest) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(30);
  absl::Status status = rest.Barrier();
  while (status.ok() && Clock::now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
    status = rest.Barrier();
  }
  return status;
}

// Rank 1 breaks off what it has with rank 0 alone, while ranks 0 and 2 wait for
// each other.
absl::Status BreakPairOff(Launch launch, int rank, bool has_own_fate) {
  launch.rank = rank;
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> world,
                          Communicator::ForLaunch(launch, Options("shm")));
  SubgroupOptions options;
  options.has_own_fate = has_own_fate;
  std::unique_ptr<Communicator> pair, rest;
  if (rank != kCulprit) {
    TANDEM_ASSIGN_OR_RETURN(rest, world->Subgroup({0, 2}, "rest", options));
  }
  if (rank != 2) {
    TANDEM_ASSIGN_OR_RETURN(pair, world->Subgroup({0, 1}, "pair", options));
  }
  if (rank == 2) return has_own_fate ? rest->Barrier() : EndOf(*rest);
  if (rank == kCulprit) {
    pair->Abort(absl::InternalError("disk full"));
    return absl::OkStatus();
  }
  const absl::Status broken = pair->Barrier();
  if (broken.ok()) return absl::InternalError("the pair is whole");
  absl::SleepFor(absl::Seconds(3));  // the watch looks twice a second
  return has_own_fate ? rest->Barrier() : EndOf(*rest);
}

TEST(GroupFateTest, AGroupWhoseFateIsItsOwnEndsNoOther) {
  for (const bool has_own_fate : {false, true}) {
    const Launch launch = JobOnFreePort();
    std::vector<std::unique_ptr<ForkedRank>> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.push_back(std::make_unique<ForkedRank>(
          rank, [=] { return BreakPairOff(launch, rank, has_own_fate); }));
    }
    for (const int rank : {0, 2}) {
      if (has_own_fate) {
        EXPECT_EQ(ranks[rank]->Result(), "OK") << rank;
      } else {
        EXPECT_THAT(ranks[rank]->Result(), HasSubstr("disk full")) << rank;
      }
    }
  }
}

// Operations of ranks on one host that make a world: the most of any rank, and
// of all.
std::pair<int64_t, int64_t> OperationsOn(int size) {
  const StorePtr store = NewHashStore(kLong);
  std::vector<int64_t> operations(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto mine = c10::make_intrusive<CountingStore>(store);
      const auto world =
          Communicator::Create(mine, rank, size, "world", Options("shm"));
      EXPECT_TRUE(world.ok()) << world.status();
      operations[rank] = mine->operations();
    });
  }
  int64_t most = 0;
  int64_t all = 0;
  for (int rank = 0; rank < size; ++rank) {
    threads[rank].join();
    most = std::max(most, operations[rank]);
    all += operations[rank];
  }
  return {most, all};
}

// The rank that comes last to one list does two operations more, and may be
// last to both.
constexpr int kLastToAnother = 2;

TEST(GroupCreationCostTest, ARanksOperationsOnTheStoreDoNotGrowWithTheRanks) {
  const auto [most_of_two, all_of_two] = OperationsOn(2);
  for (const int size : {4, 12}) {
    const auto [most, all] = OperationsOn(size);
    EXPECT_LE(most, most_of_two + kLastToAnother) << size << " ranks";
    EXPECT_LE(all * 2, all_of_two * size) << size << " ranks";
  }
}

}  // namespace
}  // namespace tandem
