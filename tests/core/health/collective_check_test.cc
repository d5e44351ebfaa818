// Disagreement about collectives, through the Communicator that checks them.

#include "core/health/collective_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/launch/launch.h"
#include "core/store/store.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Rank = std::function<absl::Status(Communicator&)>;

CommunicatorOptions Checked(std::chrono::milliseconds timeout) {
  CommunicatorOptions options;
  options.timeout = timeout;
  options.check_collectives = true;
  return options;
}

CollectivePurpose For(const std::string& text) {
  return [text] { return text; };
}

absl::Status AllReduce(Communicator& group, const at::Tensor& tensor) {
  return group.AllReduceSum(tensor, For("bucket 0 of step 2"));
}

TEST(CollectiveCheckTest, TheLevelIsReadAsPyTorchReadsIt) {
  for (const char* level : {"", "OFF", "INFO", "info"}) {
    EXPECT_FALSE(AsksForCollectiveChecks(level).value()) << level;
  }
  for (const char* level : {"DETAIL", "detail", "Detail"}) {
    EXPECT_TRUE(AsksForCollectiveChecks(level).value()) << level;
  }
  for (const char* level : {"1", "DETAILS", " OFF"}) {
    const absl::Status status = AsksForCollectiveChecks(level).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << level;
    EXPECT_THAT(
        status.message(),
        AllOf(HasSubstr(absl::StrCat("TORCH_DISTRIBUTED_DEBUG='", level, "'")),
              HasSubstr("OFF, INFO or DETAIL")));
  }
}

// What ranks start, and the part of the message that tells it.
struct Disagreement {
  const char* name;
  std::vector<Rank> ranks;
  const char* message;
};

Rank Reduces(std::vector<int64_t> sizes) {
  return [sizes](Communicator& g) { return AllReduce(g, at::ones(sizes)); };
}

Rank Gathers(at::ScalarType dtype) {
  return [dtype](Communicator& g) {
    return g.AllGather(at::ones({5}, dtype)).status();
  };
}

Rank Broadcasts(int64_t size, int root) {
  return [=](Communicator& g) { return g.Broadcast(at::ones({size}), root); };
}

Rank MeetsOthers() {
  return [](Communicator& g) { return g.Barrier(); };
}

class DisagreementTest : public testing::TestWithParam<Disagreement> {};

// After a barrier, and long before the timeout.
TEST_P(DisagreementTest, IsToldToAllRanks) {
  const std::vector<Rank>& ranks = GetParam().ranks;
  ExpectOk(RunThreadRanks(
      static_cast<int>(ranks.size()),
      [&](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        const absl::Status told = ranks[world.rank()](world);
        EXPECT_THAT(told, InvalidArgument("collective #2 of group \"world\"",
                                          GetParam().message));
        EXPECT_EQ(world.Barrier(), told) << "the group is of no more use";
        return absl::OkStatus();
      },
      Checked(std::chrono::minutes(10))));
}

INSTANTIATE_TEST_SUITE_P(
    All, DisagreementTest,
    testing::ValuesIn(std::vector<Disagreement>{
        {"AnotherOperationIsNamedWithItsPurpose",
         {Broadcasts(4, 0), Reduces({5})},
         "rank 1 started all-reduce of Float [5] on cpu (bucket 0 of step 2) "
         "where rank 0 started broadcast from rank 0 of Float [4] on cpu"},
        {"AnotherShapeIsNamedEvenOfAsManyElements",
         {Reduces({2, 3}), Reduces({2, 3}), Reduces({3, 2})},
         "rank 2 started all-reduce of Float [3, 2] on cpu (bucket 0 of step "
         "2) where rank 0 started all-reduce of Float [2, 3]"},
        {"AnEmptyTensorDisagreesWithAFullOne",
         {Reduces({5}), Reduces({0})},
         "rank 1 started all-reduce of Float [0] on cpu"},
        {"AnotherDtypeIsNamed",
         {Gathers(at::kFloat), Gathers(at::kInt)},
         "rank 1 started all-gather of Int [5] on cpu where rank 0 started "
         "all-gather of Float [5] on cpu"},
        {"AnotherRootIsNamed",
         {Broadcasts(5, 0), Broadcasts(5, 1)},
         "rank 1 started broadcast from rank 1 of Float [5] on cpu where rank "
         "0 started broadcast from rank 0 of Float [5] on cpu"},
        {"ABarrierDisagreesWithATensor",
         {Reduces({5}), MeetsOthers()},
         "rank 1 started barrier where rank 0 started all-reduce"},
        {"TheFirstRankThatDiffersIsNamed",
         {Reduces({5}), Reduces({5}), Reduces({6}), MeetsOthers()},
         "rank 2 started all-reduce of Float [6]"},
    }),
    [](const auto& info) { return info.param.name; });

TEST(CollectiveCheckTest, WhatAgreesGoesOnAndPurposesMayDiffer) {
  ExpectOk(RunThreadRanks(
      3,
      [](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> reversed,
                                world.Subgroup({2, 1, 0}, "reversed"));
        for (const int64_t size : {0, 1, 997}) {
          for (Communicator* group : {&world, reversed.get()}) {
            at::Tensor sum = at::ones({size});
            TANDEM_RETURN_IF_ERROR(
                group->AllReduceSum(sum, For(absl::StrCat(group->rank()))));
            EXPECT_TRUE(sum.eq(3).all().item<bool>());
            TANDEM_RETURN_IF_ERROR(group->Broadcast(sum, 2));
            TANDEM_RETURN_IF_ERROR(group->AllGather(sum).status());
            const std::string mine(group->rank(), 'x');
            TANDEM_ASSIGN_OR_RETURN(std::vector<std::string> all,
                                    group->AllGatherString(mine));
            EXPECT_EQ(all[2], "xx");
            TANDEM_RETURN_IF_ERROR(group->Barrier());
          }
        }
        return absl::OkStatus();
      },
      Checked(std::chrono::minutes(10))));
}

TEST(CollectiveCheckTest, SubgroupsAreCheckedByTheirOwnRanks) {
  ExpectOk(RunThreadRanks(
      3,
      [](Communicator& world) -> absl::Status {
        if (world.rank() == 0) return absl::OkStatus();
        TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> pair,
                                world.Subgroup({2, 1}, "pair"));
        EXPECT_THAT(AllReduce(*pair, at::ones({world.rank()})),
                    InvalidArgument("of group \"pair\"",
                                    "rank 1 started all-reduce of Float [1]",
                                    "where rank 2 started all-reduce of"));
        return absl::OkStatus();
      },
      Checked(std::chrono::minutes(10))));
}

// The first to give up says why; the other has waited in vain as long, or hears
// of it just before.
TEST(CollectiveCheckTest, ARankThatStartsNothingIsNamedWithItsLast) {
  std::vector<absl::Status> told(3);
  absl::BlockingCounter given_up(2);
  const absl::Status status = RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        const CollectivePurpose setup =
            For(absl::StrCat("set-up, rank ", world.rank()));
        TANDEM_RETURN_IF_ERROR(world.Broadcast(at::ones({4}), 0, setup));
        if (world.rank() == 1) {
          given_up.Wait();
          return absl::OkStatus();
        }
        told[static_cast<size_t>(world.rank())] =
            AllReduce(world, at::ones({5}));
        given_up.DecrementCount();
        return absl::OkStatus();
      },
      Checked(std::chrono::seconds(2)));
  ASSERT_TRUE(status.ok()) << status;
  const auto gave_up = [](const absl::Status& said) {
    return absl::IsDeadlineExceeded(said);
  };
  EXPECT_TRUE(gave_up(told[0]) || gave_up(told[2])) << told[0] << "\n"
                                                    << told[2];
  for (const absl::Status& said : {told[0], told[2]}) {
    EXPECT_THAT(said.message(),
                AllOf(HasSubstr("all-reduce #2 (bucket 0 of step 2) of "
                                "group \"world\" on rank "),
                      HasSubstr("not heard of: rank 1")));
    EXPECT_THAT(
        said.message(),
        HasSubstr(gave_up(said)
                      ? "rank 1 did not start all-reduce of Float [5] on cpu "
                        "(bucket 0 of step 2) within 2s; the last of rank 1 "
                        "was broadcast from rank 0 of Float [4] on cpu "
                        "(set-up, rank 1)"
                      : "another rank has failed"));
  }
}

TEST(CollectiveCheckTest, AnAbortEndsTheWaitForTheOthers) {
  ExpectOk(RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        if (world.rank() == 1) {
          world.Abort(absl::InternalError("disk full"));
          return absl::OkStatus();
        }
        EXPECT_THAT(
            AllReduce(world, at::ones({5})),
            StatusIs(absl::StatusCode::kAborted, "rank 1 gave up: disk full"));
        return absl::OkStatus();
      },
      Checked(std::chrono::minutes(10))));
}

// Its program has come to an end, with fewer batches than the others'. No
// connection breaks that anybody waits for.
TEST(CollectiveCheckTest, ARankThatHasLeftEndsTheWaitForIt) {
  for (const char* backend : {"shm", "gloo"}) {
    CommunicatorOptions options = Checked(std::chrono::minutes(10));
    options.backend = backend;
    const absl::Status status = RunThreadRanks(
        3,
        [&](Communicator& world) -> absl::Status {
          TANDEM_RETURN_IF_ERROR(AllReduce(world, at::ones({5})));
          if (world.rank() == 1) return absl::OkStatus();
          EXPECT_THAT(AllReduce(world, at::ones({5})),
                      StatusIs(absl::StatusCode::kUnavailable,
                               "all-reduce #2 (bucket 0 of step 2) of "
                               "group \"world\"",
                               "rank 1", "left the group"));
          return absl::OkStatus();
        },
        options);
    EXPECT_TRUE(status.ok()) << backend << ": " << status;
  }
}

TEST(CollectiveCheckTest, WithoutItNothingIsCompared) {
  CommunicatorOptions options = Checked(std::chrono::seconds(30));
  options.check_collectives = false;
  ExpectOk(RunThreadRanks(
      2,
      [](Communicator& world) -> absl::Status {
        // The tensor has as many bytes, and so the backend sees no difference.
        at::Tensor tensor =
            world.rank() == 0 ? at::ones({2, 3}) : at::ones({3, 2});
        TANDEM_RETURN_IF_ERROR(world.AllReduceSum(tensor));
        // Nobody waits at a start.
        if (world.rank() == 0) {
          TANDEM_RETURN_IF_ERROR(world.StartAllReduceSum(tensor).status());
          TANDEM_RETURN_IF_ERROR(world.StartAllReduceSum(tensor).status());
        }
        return absl::OkStatus();
      },
      options));
}

// Two ranks of a launch that disagree; what rank 1 is told.
absl::Status DisagreeUnder(const char* level, const std::string& file) {
  setenv("TORCH_DISTRIBUTED_DEBUG", level, /*overwrite=*/1);
  absl::Status statuses[2];
  const auto rank_main = [&](int rank) {
    Launch launch;
    launch.rank = rank;
    launch.world_size = 2;
    launch.rendezvous.kind = Rendezvous::Kind::kFile;
    launch.rendezvous.path = ::testing::TempDir() + "/" + file;
    CommunicatorOptions options;
    options.timeout = std::chrono::seconds(30);
    auto world = Communicator::ForLaunch(launch, options);
    statuses[rank] = world.ok()
                         ? AllReduce(**world, at::ones({2 + rank, 3 - rank}))
                         : world.status();
  };
  std::thread other(rank_main, 1);
  rank_main(0);
  other.join();
  unsetenv("TORCH_DISTRIBUTED_DEBUG");
  EXPECT_EQ(statuses[0].code(), statuses[1].code());
  return statuses[1];
}

// Ranks of a launch share their fate, those that compare what they start, too:
// rank 1 gives up in another group, and starts nothing in this one.
TEST(CollectiveCheckTest, AFailureInAnotherGroupEndsTheWait) {
  absl::Status told;
  absl::Notification ended;
  const auto rank_main = [&](int rank) {
    Launch launch;
    launch.rank = rank;
    launch.world_size = 2;
    launch.rendezvous.kind = Rendezvous::Kind::kFile;
    launch.rendezvous.path = ::testing::TempDir() + "/fate";
    const auto world =
        Communicator::ForLaunch(launch, Checked(std::chrono::minutes(10)));
    ASSERT_TRUE(world.ok()) << world.status();
    const auto pair = (*world)->Subgroup({0, 1}, "pair");
    ASSERT_TRUE(pair.ok()) << pair.status();
    if (rank == 1) {
      (*pair)->Abort(absl::InternalError("disk full"));
      ended.WaitForNotificationWithTimeout(absl::Minutes(1));
    } else {
      told = (*world)->Barrier();
      ended.Notify();
    }
  };
  std::thread other(rank_main, 1);
  rank_main(0);
  other.join();
  EXPECT_FALSE(told.ok());
  EXPECT_THAT(told.message(), HasSubstr("rank 1"));
}

TEST(CollectiveCheckTest, TheEnvironmentTurnsItOnForALaunch) {
  EXPECT_THAT(DisagreeUnder("DETAIL", "detail"),
              Says("rank 1 started all-reduce"));
  EXPECT_THAT(DisagreeUnder("VERBOSE", "verbose"),
              InvalidArgument("TORCH_DISTRIBUTED_DEBUG='VERBOSE'"));
}

}  // namespace
}  // namespace tandem
