#include "core/launch/restarts.h"

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

}  // namespace
}  // namespace tandem::restarts_test
