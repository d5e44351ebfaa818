#include "core/health/job_watch.h"

#include <c10/util/intrusive_ptr.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/health/group_failures.h"
#include "core/health/group_member.h"
#include "core/program/interrupt.h"
#include "tests/core/testing/forked_rank.h"

namespace tandem {
namespace {

constexpr char kWhy[] = "the job has failed: rank 3 gave up: disk full";

// Ranks 0 and 3 of a job of four; rank 3 is the second of a group "odd", too.
class JobWatchTest : public testing::Test {
 protected:
  static GroupMember Of(const StorePtr& store, int rank) {
    return MemberOfWhole(store, rank, 4);
  }
  void RankThreeFails() {
    GroupMember odd = Of(store_, 1);
    odd.store = c10::make_intrusive<c10d::PrefixStore>("odd", store_);
    odd.size = 2;
    odd.name = "odd";
    odd.rank_names = {1, 3};
    ReportGivingUp(odd, "disk full");
  }

  const StorePtr store_ = c10::make_intrusive<c10d::HashStore>();
};

TEST_F(JobWatchTest, WhoWaitsIsBrokenOffOnceInEveryGroup) {
  JobWatch watch(Of(store_, 0));
  absl::Notification first, second;
  std::string why;
  watch.Add([&](const std::string& reason) {
    why = reason;
    first.Notify();  // twice would be fatal
  });
  watch.Add([&](const std::string&) { second.Notify(); });
  const JobWatch::Waiting waiting(&watch);
  EXPECT_FALSE(first.WaitForNotificationWithTimeout(absl::Seconds(1)));
  RankThreeFails();
  ASSERT_TRUE(first.WaitForNotificationWithTimeout(absl::Seconds(30)));
  ASSERT_TRUE(second.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_EQ(why, kWhy);
}

TEST_F(JobWatchTest, NothingIsBrokenOffWhereNobodyWaits) {
  RankThreeFails();
  JobWatch watch(Of(store_, 0));
  absl::Notification called;
  watch.Add([&](const std::string&) { called.Notify(); });
  { const JobWatch::Waiting over(&watch); }
  EXPECT_FALSE(called.WaitForNotificationWithTimeout(absl::Seconds(2)));
}

TEST_F(JobWatchTest, AGroupThatJoinsLaterIsBrokenOffAtOnce) {
  RankThreeFails();
  JobWatch watch(Of(store_, 0));
  absl::Notification first;
  watch.Add([&](const std::string&) { first.Notify(); });
  const JobWatch::Waiting waiting(&watch);
  ASSERT_TRUE(first.WaitForNotificationWithTimeout(absl::Seconds(30)));
  std::string why;
  watch.Remove(watch.Add([&](const std::string& reason) { why = reason; }));
  EXPECT_EQ(why, kWhy);
}

TEST_F(JobWatchTest, AGroupThatWasRemovedIsLeftAlone) {
  JobWatch watch(Of(store_, 0));
  absl::Notification gone, there;
  const int id = watch.Add([&](const std::string&) { gone.Notify(); });
  watch.Add([&](const std::string&) { there.Notify(); });
  watch.Remove(id);
  RankThreeFails();
  const JobWatch::Waiting waiting(&watch);
  ASSERT_TRUE(there.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_FALSE(gone.HasBeenNotified());
}

// One break-off takes long (ncclCommAbort may): what other threads do with
// their groups is not held up by it.
TEST_F(JobWatchTest, OneThatTakesLongHoldsUpNobody) {
  absl::Notification begun, may_end;
  JobWatch watch(Of(store_, 0));
  watch.Add([&](const std::string&) {
    begun.Notify();
    may_end.WaitForNotification();
  });
  const int behind = watch.Add([](const std::string&) { FAIL(); });
  RankThreeFails();
  const JobWatch::Waiting waiting(&watch);
  ASSERT_TRUE(begun.WaitForNotificationWithTimeout(absl::Seconds(30)));
  watch.Remove(behind);
  std::string why;
  watch.Remove(watch.Add([&](const std::string& reason) { why = reason; }));
  EXPECT_EQ(why, kWhy);
  may_end.Notify();
}

// What a break-off uses is there as long as it runs.
TEST_F(JobWatchTest, RemoveWaitsForItsOwn) {
  absl::Notification begun;
  std::atomic<bool> ended{false};
  JobWatch watch(Of(store_, 0));
  const int id = watch.Add([&](const std::string&) {
    begun.Notify();
    absl::SleepFor(absl::Milliseconds(200));
    ended = true;
  });
  RankThreeFails();
  const JobWatch::Waiting waiting(&watch);
  ASSERT_TRUE(begun.WaitForNotificationWithTimeout(absl::Seconds(30)));
  watch.Remove(id);
  EXPECT_TRUE(ended);
}

// In a process of its own, which the wish to stop stays in. The code says what
// went wrong.
int EndOfAnInterruptedWait(const StorePtr& store) {
  HandleInterrupts();
  JobWatch watch(MemberOfWhole(store, 0, 4));
  absl::Notification called;
  std::string why;
  watch.Add([&](const std::string& reason) {
    why = reason;
    called.Notify();
  });
  kill(getpid(), SIGTERM);
  if (called.WaitForNotificationWithTimeout(absl::Seconds(7))) return 1;
  const JobWatch::Waiting waiting(&watch);
  if (called.WaitForNotificationWithTimeout(absl::Seconds(2))) return 2;
  if (!called.WaitForNotificationWithTimeout(absl::Seconds(30))) return 3;
  return why == "stopped by SIGTERM, and after 5s still waiting" ? 0 : 4;
}

TEST_F(JobWatchTest, WhoWaitsAfterAnInterruptIsBrokenOffInSeconds) {
  EXPECT_EQ(StatusOfChild([&] { _exit(EndOfAnInterruptedWait(store_)); }), 0);
}

// A scheduler's word, or a launcher's that makes room for a node: a step and
// its checkpoint may be long, and others wait for whoever has not ended its
// own.
int EndOfAWaitThatHasTime(const StorePtr& store) {
  HandleInterrupts();
  SetInterruptGrace(absl::Milliseconds(100));
  JobWatch watch(MemberOfWhole(store, 0, 4));
  absl::Notification called;
  watch.Add([&](const std::string&) { called.Notify(); });
  const JobWatch::Waiting waiting(&watch);
  kill(getpid(), SIGUSR1);
  if (called.WaitForNotificationWithTimeout(absl::Seconds(4))) return 1;
  if (InterruptSignal() != SIGUSR1) return 2;
  kill(getpid(), SIGTERM);
  return called.WaitForNotificationWithTimeout(absl::Seconds(30)) ? 0 : 3;
}

TEST_F(JobWatchTest, WhoMakesRoomWaitsUntilSomethingPresses) {
  EXPECT_EQ(StatusOfChild([&] { _exit(EndOfAWaitThatHasTime(store_)); }), 0);
}

}  // namespace
}  // namespace tandem
