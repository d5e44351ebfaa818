#include "core/replace/membership.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::membership_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(GenerationTest, TheFirstHasAllRanks) {
  const Generation first = FirstGeneration(3);
  EXPECT_EQ(first.number, 0);
  EXPECT_THAT(first.Ranks(), ElementsAre(0, 1, 2));
  EXPECT_EQ(first.PlaceOf({2, 0}), 2);
  EXPECT_EQ(first.PlaceOf({2, 1}), std::nullopt);
  EXPECT_EQ(first.Source(), std::nullopt);
}

TEST(GenerationTest, WhoIsNeitherReadyNorDeadIsMissing) {
  Notices notices;
  notices.ready = {{0, 0, 7}};
  notices.dead = {{{2, 0}, "killed"}};
  const std::vector<Member> missing = Missing(FirstGeneration(4), notices);
  ASSERT_THAT(missing, SizeIs(2));
  EXPECT_EQ(missing[0].rank, 1);
  EXPECT_EQ(missing[1].rank, 3);
}

TEST(GenerationTest, TheReadyGoOnAndNewcomersComeIn) {
  Notices notices;
  notices.ready = {{2, 0, 5}, {0, 0, 4}};
  // Life 1 of rank 1 died before it was let in.
  notices.waiting = {{1, 1}, {1, 2}};
  notices.dead = {{{1, 0}, "killed"}, {{1, 1}, "killed"}};
  const Generation now = FirstGeneration(3);
  EXPECT_THAT(Missing(now, notices), IsEmpty());
  EXPECT_THAT(Newcomers(now, notices), SizeIs(1));

  const Generation next = NextGeneration(now, notices);
  EXPECT_EQ(next.number, 1);
  EXPECT_THAT(next.Ranks(), ElementsAre(0, 1, 2));
  EXPECT_EQ(next.members[1].life, 2);
  EXPECT_EQ(next.members[1].step, kNoState);
  // Rank 2 has done a step that rank 0 has not.
  EXPECT_EQ(next.Source(), 2);
  EXPECT_THAT(Newcomers(next, notices), IsEmpty());
}

TEST(GenerationTest, WhoWasReadyAndDiedDoesNotGoOn) {
  Notices notices;
  notices.ready = {{0, 0, 4}, {1, 0, 4}};
  notices.dead = {{{1, 0}, "killed"}};
  EXPECT_THAT(NextGeneration(FirstGeneration(2), notices).Ranks(),
              ElementsAre(0));
}

TEST(GenerationTest, OfEquallyManyStepsTheFirstIsTheSource) {
  Generation generation;
  generation.members = {{0, 1}, {3, 0, 6}, {4, 0, 6}};
  EXPECT_EQ(generation.Source(), 1);
}

TEST(GenerationTest, TextsAreReadBack) {
  const Generation generation = {12, {{0, 0, 4000000000}, {6, 3, kNoState}}};
  const auto read = DecodeGeneration(Encode(generation));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->number, 12);
  EXPECT_THAT(read->Ranks(), ElementsAre(0, 6));
  EXPECT_EQ(read->members[0].step, 4000000000);
  EXPECT_EQ(read->members[1].life, 3);
  EXPECT_EQ(read->members[1].step, kNoState);
  EXPECT_EQ(DecodeGeneration(""), std::nullopt);
  EXPECT_EQ(DecodeGeneration("x"), std::nullopt);

  const std::vector<Death> deaths =
      DecodeDeaths(Encode(Death{{1, 0}, "exit code 3"}) +
                   Encode(Death{{1, 1}, ""}) + "rubbish");
  ASSERT_THAT(deaths, SizeIs(2));
  EXPECT_EQ(deaths[0].how, "exit code 3");
  EXPECT_EQ(deaths[1].process.life, 1);
  EXPECT_THAT(DecodeMembers(Encode(Member{5, 1, 2}) + "3:abc"), SizeIs(1));
}

}  // namespace
}  // namespace tandem::membership_test
