// Warnings about late ranks, through the Communicator that gives them.

#include "core/health/straggler_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/health/group_member.h"
#include "core/store/store.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/testing/log_lines.h"

namespace tandem::straggler_watch_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

CommunicatorOptions WarnAfter(int milliseconds) {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(30);
  options.straggler_warning = std::chrono::milliseconds(milliseconds);
  return options;
}

std::string Bucket() { return "bucket 1 of step 4"; }

// Holds the late ranks back until the others have said so.
void AwaitIf(bool late, LogLines& log, const char* text) {
  if (late) {
    EXPECT_TRUE(log.Await(text)) << text;
  }
}

TEST(StragglerWatchTest, ALateRankIsNamedOnceAndWhenItComes) {
  LogLines log;
  ExpectOk(RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        AwaitIf(world.rank() == 2, log, "rank 2 is late");
        return world.AllReduceSum(at::ones({5}), Bucket);
      },
      WarnAfter(2000)));
  EXPECT_THAT(
      log.lines(),
      ElementsAre(MatchesRegex("rank 2 is late: rank [01] has waited [0-9.]+m?s"
                               " for all-reduce #2 \\(bucket 1 of step 4\\) of "
                               "group \"world\""),
                  MatchesRegex("rank 2 was [0-9.]+m?s late for all-reduce #2 "
                               "\\(bucket 1 of step 4\\) of group \"world\"")));
}

TEST(StragglerWatchTest, SeveralLateRanksAreNamedAndEveryCollectiveCounts) {
  LogLines log;
  ExpectOk(RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        AwaitIf(world.rank() != 1, log, "ranks 0, 2 are late");
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        AwaitIf(world.rank() == 1, log, "rank 1 is late");
        return world.Barrier();
      },
      WarnAfter(2000)));
  EXPECT_THAT(
      log.lines(),
      ElementsAre(HasSubstr("ranks 0, 2 are late: rank 1 has waited"),
                  HasSubstr("ranks 0, 2 were "), HasSubstr("rank 1 is late"),
                  HasSubstr("rank 1 was")));
}

TEST(StragglerWatchTest, APendingCollectiveIsWatchedToo) {
  LogLines log;
  ExpectOk(RunThreadRanks(
      2,
      [&](Communicator& world) -> absl::Status {
        AwaitIf(world.rank() == 0, log, "rank 0 is late");
        at::Tensor tensor = at::ones({5});
        TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                                world.StartAllReduceSum(tensor, 1, Bucket));
        TANDEM_RETURN_IF_ERROR(pending.Wait());
        EXPECT_EQ(tensor[4].item<float>(), 2);
        return absl::OkStatus();
      },
      WarnAfter(50)));
}

TEST(StragglerWatchTest, RanksThatComeInTimeOrAreNotWatchedGiveNoLine) {
  LogLines log;
  for (const int threshold : {0, 20000}) {
    ExpectOk(RunThreadRanks(
        3,
        [](Communicator& world) -> absl::Status {
          for (int i = 0; i < 13; ++i) {
            TANDEM_RETURN_IF_ERROR(world.AllReduceSum(at::ones({997})));
          }
          return absl::OkStatus();
        },
        WarnAfter(threshold)));
  }
  EXPECT_THAT(log.lines(), IsEmpty());
}

TEST(StragglerWatchTest, ARankThatNeverComesIsATimeoutAllTheSame) {
  LogLines log;
  CommunicatorOptions options = WarnAfter(200);
  options.timeout = std::chrono::seconds(2);
  absl::Notification given_up;
  const absl::Status status = RunThreadRanks(
      2,
      [&](Communicator& world) -> absl::Status {
        if (world.rank() == 1) {
          given_up.WaitForNotification();
          return absl::OkStatus();
        }
        const absl::Status failed = world.AllReduceSum(at::ones({5}), Bucket);
        given_up.Notify();
        return failed;
      },
      options);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("not heard of: rank 1"));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("rank 1 is late")));
}

TEST(StragglerWatchTest, SubgroupsSayTheirOwnNameAndTheJobsRanks) {
  LogLines log;
  ExpectOk(RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        if (world.rank() == 0) return absl::OkStatus();
        TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> pair,
                                world.Subgroup({2, 1}, "pair"));
        AwaitIf(pair->rank() == 0, log, "rank 2 is late");
        return pair->Barrier();
      },
      WarnAfter(50)));
  EXPECT_THAT(log.lines()[0], HasSubstr("rank 2 is late: rank 1 has waited"));
  EXPECT_THAT(log.lines()[0], HasSubstr("barrier #1 of group \"pair\""));
}

// Is there when somebody waits for it the third time.
class LateWork : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override {
    if (++waits_ < 3) throw std::runtime_error("not in time");
    return true;
  }
  bool isCompleted() override { return waits_ >= 3; }

 private:
  int waits_ = 0;
};

TEST(StragglerWatchTest, TheStoreDoesNotGrowWithTheCollectivesThatAreLate) {
  LogLines log;
  const StorePtr store = NewHashStore(std::chrono::seconds(30));
  StragglerWatch watch(MemberOfWhole(store, /*rank=*/0, /*size=*/2),
                       std::chrono::milliseconds(1));
  for (int sequence = 1; sequence <= 20; ++sequence) {
    const auto work = c10::make_intrusive<LateWork>();
    EXPECT_TRUE(watch.Wait(*work, sequence, Bucket).ok());
    EXPECT_EQ(log.lines().size(), 2 * static_cast<size_t>(sequence));
  }
  EXPECT_LE(store->getNumKeys(), 2);
}

}  // namespace
}  // namespace tandem::straggler_watch_test
