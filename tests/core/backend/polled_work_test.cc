// A stream's work, which says by polling that it has ended, as one that the
// host waits for.

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "absl/time/time.h"
#include "core/backend/breakable_works.h"
#include "core/backend/host_works.h"
#include "core/base/torch_status.h"

namespace tandem::polled_work_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Ends when it is told; its wait() returns at once, as a stream's does.
class StreamWork : public c10d::Work {
 public:
  bool isCompleted() override {
    if (looks_left_ > 0 && --looks_left_ == 0) End(its_error_);
    return ended_;
  }
  std::exception_ptr exception() const override { return error_; }
  bool wait(milliseconds) override { return true; }
  void End(std::exception_ptr error = nullptr) {
    error_ = std::move(error);
    ended_ = true;
  }
  // By itself, at that look at it from now on; on the thread that looks.
  void EndAtLook(int look, std::exception_ptr error) {
    its_error_ = std::move(error);
    looks_left_ = look;
  }

 private:
  std::exception_ptr error_;
  int looks_left_ = 0;
  std::exception_ptr its_error_;
  std::atomic<bool> ended_{false};
};

absl::Status WaitFor(PolledWork& work, milliseconds timeout = kNoTimeout) {
  return CatchTorch([&] { work.wait(timeout); });
}

std::exception_ptr Error(const std::string& text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

TEST(PolledWork, WaitsForTheEnd) {
  const auto stream = c10::make_intrusive<StreamWork>();
  PolledWork work(stream, milliseconds(60000));
  std::atomic<bool> ends{false};
  std::thread ender([&] {
    std::this_thread::sleep_for(milliseconds(50));
    ends = true;
    stream->End();
  });
  EXPECT_TRUE(WaitFor(work).ok());
  EXPECT_TRUE(ends);
  ender.join();
}

TEST(PolledWork, ThrowsWhatTheWorkEndsWith) {
  const auto stream = c10::make_intrusive<StreamWork>();
  stream->End(Error("aborted"));
  PolledWork work(stream, milliseconds(60000));
  EXPECT_THAT(std::string(WaitFor(work).message()), HasSubstr("aborted"));
}

TEST(PolledWork, TimesOutAndMayBeWaitedForAgain) {
  const auto stream = c10::make_intrusive<StreamWork>();
  PolledWork work(stream, milliseconds(60000));
  const absl::Status late = WaitFor(work, milliseconds(20));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("after 20 ms"));
  stream->End();
  EXPECT_TRUE(WaitFor(work).ok());
}

TEST(PolledWork, ItsOwnTimeoutHoldsWhereNoneIsGiven) {
  PolledWork work(c10::make_intrusive<StreamWork>(), milliseconds(20));
  EXPECT_TRUE(absl::IsDeadlineExceeded(WaitFor(work)));
}

TEST(PolledWork, LooksAtOthersMeanwhile) {
  PolledWork work(c10::make_intrusive<StreamWork>(), milliseconds(60000),
                  [] { throw std::runtime_error("rank 1 died"); });
  EXPECT_THAT(std::string(WaitFor(work).message()), HasSubstr("rank 1 died"));
}

// The work's own error says more than that another rank has failed, and comes a
// moment later.
TEST(PolledWork, PrefersTheWorksOwnError) {
  const auto stream = c10::make_intrusive<StreamWork>();
  PolledWork work(stream, milliseconds(60000), [&] {
    stream->EndAtLook(3, Error("deadlock"));
    throw std::runtime_error("another rank failed");
  });
  EXPECT_THAT(std::string(WaitFor(work).message()), HasSubstr("deadlock"));
}

constexpr int kPeer = 2;

class Message : public c10d::Work {
 public:
  void abort() override { ++aborts; }
  int aborts = 0;
};

using Clock = BreakableWaits::Clock;

Clock::duration Seconds(double seconds) {
  return absl::ToChronoNanoseconds(absl::Seconds(seconds));
}
BreakableWaits::Time In(double seconds) {
  return Clock::now() + Seconds(seconds);
}

class BreakableWaitsTest : public testing::Test {
 protected:
  BreakableWaits waits_;
  const c10::intrusive_ptr<Message> message_ = c10::make_intrusive<Message>();
};

TEST_F(BreakableWaitsTest, IsDueAfterASecondAndThenLessAndLessOften) {
  EXPECT_THAT(waits_.PeersDue(In(100)), IsEmpty());
  const BreakableWaits::Time before = Clock::now();
  const BreakableWaits::Waiting waiting(&waits_, message_.get(), kPeer);
  // The wait began between the two, which a busy machine has far apart.
  const BreakableWaits::Time begun = Clock::now();
  const Clock::duration apart = begun - before;
  const auto due = [&](BreakableWaits::Time time) {
    return !waits_.PeersDue(time).empty();
  };
  EXPECT_FALSE(due(before + Seconds(0.9)));
  EXPECT_TRUE(due(begun + Seconds(1.1)));
  EXPECT_FALSE(due(before + Seconds(1.6)));
  EXPECT_TRUE(due(begun + Seconds(1.8) + 2 * apart));
  EXPECT_FALSE(due(before + Seconds(2.6)));
  EXPECT_TRUE(due(begun + Seconds(2.8) + 4 * apart));
}

TEST_F(BreakableWaitsTest, AsksForEachPeerOnce) {
  const BreakableWaits::Waiting first(&waits_, message_.get(), kPeer);
  const BreakableWaits::Waiting second(&waits_, message_.get(), kPeer);
  const BreakableWaits::Waiting all(&waits_, nullptr, BreakableWaits::kAll);
  EXPECT_THAT(waits_.PeersDue(In(2)), ElementsAre(BreakableWaits::kAll, kPeer));
}

TEST_F(BreakableWaitsTest, AMessageIsGivenAMomentForItsLastBytes) {
  const BreakableWaits::Waiting waiting(&waits_, message_.get(), kPeer);
  EXPECT_EQ(waits_.Confirmed(In(100)), "");
  const BreakableWaits::Time before = Clock::now();
  waits_.Doubt(kPeer, "closed");
  EXPECT_EQ(waits_.Confirmed(before + Seconds(0.4)), "");
  EXPECT_EQ(waits_.Confirmed(In(0.6)), "closed");
}

TEST_F(BreakableWaitsTest, ADoubtIsOverWithItsWait) {
  {
    const BreakableWaits::Waiting waiting(&waits_, message_.get(), kPeer);
    waits_.Doubt(kPeer, "closed");
  }
  const BreakableWaits::Waiting later(&waits_, message_.get(), kPeer);
  EXPECT_EQ(waits_.Confirmed(In(100)), "");
}

TEST_F(BreakableWaitsTest, AnotherPeerIsNoConcernOfAMessage) {
  const BreakableWaits::Waiting waiting(&waits_, message_.get(), kPeer);
  waits_.Doubt(kPeer + 1, "closed");
  waits_.Doubt(BreakableWaits::kAll, "closed");
  EXPECT_EQ(waits_.Confirmed(In(100)), "");
}

TEST_F(BreakableWaitsTest, ACollectiveIsGivenTimeForTheOthersPart) {
  const BreakableWaits::Waiting all(&waits_, nullptr, BreakableWaits::kAll);
  const BreakableWaits::Time before = Clock::now();
  waits_.Doubt(BreakableWaits::kAll, "closed");
  EXPECT_EQ(waits_.Confirmed(before + Seconds(3)), "");
  EXPECT_EQ(waits_.Confirmed(In(5)), "closed");
}

// A large sum over a slow network, whose first rank has gone.
TEST_F(BreakableWaitsTest, ACollectiveIsGivenTimeWhileTheOthersMoveBytes) {
  EXPECT_FALSE(waits_.HasDoubtedCollective());
  const BreakableWaits::Waiting all(&waits_, nullptr, BreakableWaits::kAll);
  const BreakableWaits::Waiting message(&waits_, message_.get(), kPeer);
  waits_.Doubt(kPeer, "closed");
  EXPECT_FALSE(waits_.HasDoubtedCollective());
  const BreakableWaits::Time before = Clock::now();
  waits_.Doubt(BreakableWaits::kAll, "closed");
  EXPECT_TRUE(waits_.HasDoubtedCollective());
  // The message's peer is gone, whatever the others do.
  waits_.RenewDoubts(before + Seconds(60));
  EXPECT_EQ(waits_.Confirmed(before + Seconds(63)), "closed");
}

TEST_F(BreakableWaitsTest, ACollectiveThatStandsStillIsBroken) {
  const BreakableWaits::Waiting all(&waits_, nullptr, BreakableWaits::kAll);
  const BreakableWaits::Time before = Clock::now();
  waits_.Doubt(BreakableWaits::kAll, "closed");
  waits_.RenewDoubts(before + Seconds(60));
  EXPECT_EQ(waits_.Confirmed(before + Seconds(63)), "");
  EXPECT_EQ(waits_.Confirmed(before + Seconds(65)), "closed");
}

TEST_F(BreakableWaitsTest, ABreakAbortsMessagesAndEndsCollectives) {
  const BreakableWaits::Waiting waiting(&waits_, message_.get(), kPeer);
  const bool ended = false;
  std::thread breaks([this] { waits_.Break("gone"); });
  EXPECT_FALSE(waits_.AwaitEnd(&ended, absl::Seconds(30)));
  breaks.join();
  waits_.Break("again");
  EXPECT_EQ(message_->aborts, 1);
  EXPECT_TRUE(waits_.IsBroken());
  EXPECT_FALSE(waits_.Pause(absl::Seconds(30)));
  try {
    waits_.ThrowBroken();
  } catch (const c10::DistNetworkError& error) {
    EXPECT_STREQ(error.what_without_backtrace(), "gone");
  }
}

TEST_F(BreakableWaitsTest, ACollectiveEndsOrTimesOut) {
  bool ended = false;
  EXPECT_FALSE(waits_.AwaitEnd(&ended, absl::Milliseconds(1)));
  waits_.MarkEnded(&ended);
  EXPECT_TRUE(waits_.AwaitEnd(&ended, absl::InfiniteDuration()));
}

TEST_F(BreakableWaitsTest, APauseEndsWhenStopped) {
  EXPECT_TRUE(waits_.Pause(absl::Milliseconds(1)));
  waits_.Stop();
  EXPECT_FALSE(waits_.Pause(absl::Seconds(30)));
}

}  // namespace
}  // namespace tandem::polled_work_test
