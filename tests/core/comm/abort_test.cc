// Communicator::Abort: what the others and the rank itself see.

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/thread_ranks.h"

namespace tandem::abort_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Longer than the test may take: nothing here ends by timeout.
CommunicatorOptions Patient() {
  CommunicatorOptions options;
  options.timeout = std::chrono::minutes(10);
  return options;
}

const absl::Status& DiskFull() {
  static const auto* const status =
      new absl::Status(absl::StatusCode::kResourceExhausted, "disk full");
  return *status;
}

void ExpectToldOfRank1(const absl::Status& status, const std::string& what) {
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(what), HasSubstr("rank 1 gave up: disk full"),
                    Not(HasSubstr("connection"))));
}

TEST(AbortTest, ThoseThatWaitAreToldTheReason) {
  absl::BlockingCounter about_to_wait(2);
  const absl::Status status = RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        if (world.rank() == 1) {
          about_to_wait.Wait();
          world.Abort(DiskFull());
          EXPECT_EQ(world.Barrier(), DiskFull());
          return absl::OkStatus();
        }
        at::Tensor tensor = at::ones({997});
        TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                                world.StartAllReduceSum(tensor));
        about_to_wait.DecrementCount();
        ExpectToldOfRank1(
            pending.Wait(),
            absl::StrCat("all-reduce #2 of group \"world\" on rank ",
                         world.rank(), " of 3 failed"));
        return absl::OkStatus();
      },
      Patient());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(AbortTest, ThoseThatComeLaterAreToldTheReason) {
  absl::Notification aborted;
  absl::BlockingCounter others(2);
  const absl::Status status = RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        if (world.rank() == 1) {
          others.Wait();
          world.Abort(DiskFull());
          world.Abort(absl::InternalError("a second time"));
          aborted.Notify();
          return absl::OkStatus();
        }
        others.DecrementCount();  // out of the barrier
        aborted.WaitForNotification();
        ExpectToldOfRank1(world.Barrier(), "barrier #2");
        ExpectToldOfRank1(world.AllReduceSum(at::ones({5})), "barrier #2");
        return absl::OkStatus();
      },
      Patient());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(AbortTest, WhatTheRankItselfHasStartedEndsAtOnce) {
  const absl::Status status = RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        if (world.rank() == 2) {
          // Whether it is told while it waits or when it starts.
          ExpectToldOfRank1(world.Barrier(), "barrier #1");
          return absl::OkStatus();
        }
        std::vector<PendingCollective> pending;
        for (int i = 0; i < 5; ++i) {
          auto started = world.StartAllReduceSum(at::ones({997}));
          if (started.ok()) pending.push_back(*std::move(started));
        }
        if (world.rank() == 1) {
          pending.pop_back();  // one that nobody waits for
          world.Abort(DiskFull());
          EXPECT_EQ(pending[0].Wait(), DiskFull());
          EXPECT_EQ(pending[1].Wait(), DiskFull());
        } else {
          ExpectToldOfRank1(world.Barrier(), "rank 0 of 3");
        }
        return absl::OkStatus();  // the rest is dropped
      },
      Patient());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(AbortTest, OtherGroupsGoOn) {
  const absl::Status status = RunThreadRanks(
      2,
      [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> pair,
                                world.Subgroup({0, 1}, "pair"));
        if (world.rank() == 1) {
          pair->Abort(DiskFull());
        } else {
          ExpectToldOfRank1(pair->Barrier(), "barrier #1 of group \"pair\"");
        }
        return world.Barrier();
      },
      Patient());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(AbortTest, SubgroupsNameRanksAsTheJobDoes) {
  const absl::Status status = RunThreadRanks(
      4,
      [&](Communicator& world) -> absl::Status {
        if (world.rank() % 2 == 0) return absl::OkStatus();
        TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> pair,
                                world.Subgroup({1, 3}, "odd"));
        if (world.rank() == 3) {
          pair->Abort(DiskFull());
          return absl::OkStatus();
        }
        const absl::Status told = pair->Barrier();
        EXPECT_TRUE(absl::IsAborted(told)) << told;
        EXPECT_THAT(told.message(),
                    AllOf(HasSubstr("of group \"odd\" on rank 1 of {1, 3} "),
                          HasSubstr("rank 3 gave up")));
        return absl::OkStatus();
      },
      Patient());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(AbortTest, ASubgroupThatIsNotCompleteNamesTheMissing) {
  CommunicatorOptions options = Patient();
  options.timeout = std::chrono::seconds(2);  // to make "world", too
  const absl::Status status = RunThreadRanks(
      4,
      [&](Communicator& world) -> absl::Status {
        if (world.rank() != 1) return absl::OkStatus();
        const absl::Status alone = world.Subgroup({1, 3}, "odd").status();
        EXPECT_TRUE(absl::IsDeadlineExceeded(alone)) << alone;
        EXPECT_THAT(alone.message(),
                    AllOf(HasSubstr("group \"odd\", rank 1 of {1, 3}"),
                          HasSubstr("rank 3 did not come within 2s")));
        return absl::OkStatus();
      },
      options);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(AbortTest, AloneThereIsNobodyToTell) {
  const absl::Status status = RunThreadRanks(
      1,
      [&](Communicator& world) -> absl::Status {
        world.Abort(DiskFull());
        return world.Barrier();
      },
      Patient());
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace tandem::abort_test
