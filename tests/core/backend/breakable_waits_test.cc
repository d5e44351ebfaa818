#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "absl/time/time.h"
#include "core/backend/breakable_works.h"

namespace tandem::breakable_waits_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
}  // namespace tandem::breakable_waits_test
