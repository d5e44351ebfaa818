#include "core/health/group_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::group_member_test {
namespace {

using ::testing::ElementsAre;

TEST(GroupMemberTest, TheJobsRanksAreCalledByTheirNumbers) {
  GroupMember member;
  member.rank = 1;
  member.size = 4;
  EXPECT_EQ(member.NameOf(3), 3);
  EXPECT_THAT(member.NamesOf({0, 2}), ElementsAre(0, 2));
  EXPECT_EQ(member.ToString(), "rank 1 of 4");
}

TEST(GroupMemberTest, ASubgroupsRanksAreCalledByTheJobsNumbers) {
  GroupMember member;
  member.rank = 1;
  member.size = 2;
  member.rank_names = {1, 3};
  EXPECT_EQ(member.NameOf(0), 1);
  EXPECT_THAT(member.NamesOf({1, 0}), ElementsAre(3, 1));
  EXPECT_EQ(member.ToString(), "rank 3 of {1, 3}");
  member.rank_names = {0, 3, 6, 9, 12, 15, 18, 21, 24, 27};
  EXPECT_EQ(member.ToString(),
            "rank 3 of {0, 3, 6, 9, 12, 15, 18, 21 and 2 more}");
}

TEST(GroupMemberTest, GroupsOfOneNameAreToldApart) {
  GroupMember member, other;
  member.name = other.name = "pair";
  member.rank_names = {1, 3};
  other.rank_names = {0, 2};
  EXPECT_NE(member.Id(), other.Id());
  other.rank_names = {1, 3};
  EXPECT_EQ(member.Id(), other.Id());
}

}  // namespace
}  // namespace tandem::group_member_test
