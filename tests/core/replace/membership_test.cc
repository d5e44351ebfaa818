#include "core/replace/membership.h"

#include <optional>
#include <vector>

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
  EXPECT_EQ(first.Source(0), std::nullopt);
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
  EXPECT_EQ(next.Source(0), 2);
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
  EXPECT_EQ(generation.Source(0), 1);
}

TEST(GenerationTest, AReplicaIsThereAsAWholeOrNotAtAll) {
  const Generation now = FirstGeneration(6, 2);
  Notices notices;
  notices.dead = {{{1, 0}, "killed"}};
  EXPECT_TRUE(HasLivingReplica(now, notices));
  notices.ready = {{0, 0, 3}, {2, 0, 3}, {3, 0, 3}, {4, 0, 3}, {5, 0, 3}};
  EXPECT_THAT(NextGeneration(now, notices).Ranks(), ElementsAre(2, 3, 4, 5));
  notices.dead.push_back({{2, 0}, "killed"});
  EXPECT_TRUE(HasLivingReplica(now, notices));
  // What is left of two replicas makes one.
  Generation next = NextGeneration(now, notices);
  EXPECT_THAT(next.Ranks(), ElementsAre(4, 5, 0, 3));
  EXPECT_EQ(next.Source(3), 1);
  notices.waiting = {{1, 1}};
  // Rank 0 is a member still.
  EXPECT_FALSE(HasNewReplica(now, notices));
  next = NextGeneration(now, notices);
  EXPECT_THAT(next.Ranks(), ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(next.ranks_of_replica, 2);
  EXPECT_EQ(next.Source(1), 3);

  // Rank 3 waits, and has said so twice.
  notices.waiting = {{1, 1}, {3, 0}, {3, 0}};
  EXPECT_FALSE(HasNewReplica(next, notices));
  notices.waiting.push_back({2, 1});
  EXPECT_TRUE(HasNewReplica(next, notices));

  notices.dead.push_back({{5, 0}, "killed"});
  EXPECT_TRUE(HasLivingReplica(now, notices));  // 0 or 4, and 3
  notices.dead.push_back({{3, 0}, "killed"});
  EXPECT_FALSE(HasLivingReplica(now, notices));
}

TEST(GenerationTest, ANewcomerTakesNoPlaceOfTheOnlyOneWithState) {
  // Rank 4 of the replicas {4, 5} and {0, 3} dies when rank 1 is back.
  Generation now = FirstGeneration(6, 2);
  now.members = {{4}, {5}, {0}, {3}};
  Notices notices;
  notices.dead = {{{1, 0}, ""}, {{2, 0}, ""}, {{4, 0}, ""}};
  notices.ready = {{0, 0, 3}, {3, 0, 3}, {5, 0, 3}};
  notices.waiting = {{1, 1}};
  Generation next = NextGeneration(now, notices);
  EXPECT_THAT(next.Ranks(), ElementsAre(0, 3));
  EXPECT_TRUE(next.HasState());

  // Rank 2 has what ranks 0 and 3 took with them.
  now = FirstGeneration(4, 2);
  notices.dead = {{{0, 0}, ""}, {{3, 0}, ""}};
  notices.ready = {{1, 0, 3}, {2, 0, 3}};
  notices.waiting = {{0, 1}};
  next = NextGeneration(now, notices);
  EXPECT_THAT(next.Ranks(), ElementsAre(2, 1));
  EXPECT_TRUE(next.HasState());
}

TEST(GenerationTest, EachPartOfTheModelHasItsSource) {
  Generation generation = FirstGeneration(6, 3);
  EXPECT_FALSE(generation.HasState());
  generation.members = {{0, 0, 4, /*has_next=*/true},
                        {1, 0, 5},
                        {2, 1},
                        {3, 0, 4},
                        {4, 1},
                        {5, 0, 4}};
  EXPECT_EQ(generation.Step(), 5);
  EXPECT_EQ(generation.Source(0), 0);
  EXPECT_EQ(generation.Source(3), 0);
  EXPECT_EQ(generation.Source(4), 1);
  // Rank 5 is at step 4.
  EXPECT_EQ(generation.Source(2), std::nullopt);
  EXPECT_FALSE(generation.HasState());
  generation.members[5].has_next = true;
  EXPECT_EQ(generation.Source(2), 5);
  EXPECT_TRUE(generation.HasState());
}

TEST(GenerationTest, TextsAreReadBack) {
  const Generation generation = {
      12, 2, {{0, 0, 4000000000, /*has_next=*/true}, {6, 3, kNoState}}};
  const auto read = DecodeGeneration(Encode(generation));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->number, 12);
  EXPECT_THAT(read->Ranks(), ElementsAre(0, 6));
  EXPECT_EQ(read->ranks_of_replica, 2);
  EXPECT_EQ(read->members[0].step, 4000000000);
  EXPECT_TRUE(read->members[0].has_next);
  EXPECT_FALSE(read->members[1].has_next);
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
