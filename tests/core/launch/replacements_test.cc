#include <chrono>
#include <string>

#include "core/launch/restarts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::replacements_test {
namespace {

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
}  // namespace tandem::replacements_test
