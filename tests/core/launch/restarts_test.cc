#include "core/launch/restarts.h"

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::restarts_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

TEST(RestartsTest, DelaysDoubleUpToAMinute) {
  const Restarts restarts(100, milliseconds(1500));
  EXPECT_EQ(restarts.DelayBefore(1), milliseconds(1500));
  EXPECT_EQ(restarts.DelayBefore(2), milliseconds(3000));
  EXPECT_EQ(restarts.DelayBefore(5), milliseconds(24000));
  EXPECT_EQ(restarts.DelayBefore(6), milliseconds(48000));
  EXPECT_EQ(restarts.DelayBefore(7), milliseconds(60000));
  EXPECT_EQ(restarts.DelayBefore(1000000), milliseconds(60000));
}

TEST(RestartsTest, NoDelayStaysNone) {
  const Restarts restarts(3, milliseconds(0));
  EXPECT_EQ(restarts.DelayBefore(1), milliseconds(0));
  EXPECT_EQ(restarts.DelayBefore(3), milliseconds(0));
}

TEST(RestartsTest, AllowsAsManyAsItWasTold) {
  const Restarts none(0, milliseconds(1));
  EXPECT_TRUE(none.Allows(0));
  EXPECT_FALSE(none.Allows(1));
  const Restarts three(3, milliseconds(1));
  EXPECT_TRUE(three.Allows(3));
  EXPECT_FALSE(three.Allows(4));
}

TEST(RestartsTest, RemembersWhatEndedEachAttempt) {
  Restarts restarts(2, milliseconds(1));
  restarts.NoteEnd(0, milliseconds(12340), "rank 1 died");
  restarts.NoteChange("goes on with 1 rank");
  restarts.NoteEnd(1, milliseconds(40), "rank 0 died");
  EXPECT_THAT(restarts.history(),
              ElementsAre("attempt 1 of 3, after 12.3 s: rank 1 died; goes "
                          "on with 1 rank",
                          "attempt 2 of 3, after 0.0 s: rank 0 died"));
}

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

const Replacements::Clock::time_point kStart{};

TEST(ReplacementsTest, NoneAreAllowedWithoutAny) {
  EXPECT_FALSE(Replacements(0, seconds(1)).Allows());
}

TEST(ReplacementsTest, AllRanksTogetherHaveSoMany) {
  Replacements replacements(2, seconds(1));
  EXPECT_EQ(replacements.NoteDeath(1, kStart, "first"), seconds(1));
  EXPECT_TRUE(replacements.Allows());
  EXPECT_EQ(replacements.NoteDeath(0, kStart, "second"), seconds(2));
  EXPECT_FALSE(replacements.Allows());
  replacements.NoteLast("third");
  EXPECT_EQ(replacements.done(), 2);
  EXPECT_THAT(replacements.history(), ElementsAre("first", "second", "third"));
}

TEST(ReplacementsTest, ARankIsDueOnceAfterItsDelay) {
  Replacements replacements(9, milliseconds(100));
  EXPECT_EQ(replacements.NextDue(), std::nullopt);
  replacements.NoteDeath(4, kStart, "");
  replacements.NoteDeath(2, kStart, "");
  EXPECT_EQ(replacements.NextDue(), kStart + milliseconds(100));
  EXPECT_EQ(replacements.TakeDue(kStart + milliseconds(99)), std::nullopt);
  EXPECT_EQ(replacements.TakeDue(kStart + milliseconds(300)), 4);
  EXPECT_EQ(replacements.TakeDue(kStart + milliseconds(300)), 2);
  EXPECT_EQ(replacements.TakeDue(kStart + milliseconds(300)), std::nullopt);
}

TEST(ReplacementsTest, LivesAreCountedByRank) {
  Replacements replacements(9, seconds(1));
  replacements.NoteDeath(1, kStart, "");
  replacements.NoteDeath(1, kStart, "");
  replacements.NoteDeath(0, kStart, "");
  EXPECT_EQ(replacements.LifeOf(0), 1);
  EXPECT_EQ(replacements.LifeOf(1), 2);
  EXPECT_EQ(replacements.LifeOf(7), 0);
}

}  // namespace
}  // namespace tandem::restarts_test
