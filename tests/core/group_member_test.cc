#include "core/group_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using ::testing::ElementsAre;

TEST(GroupMemberTest, TheJobsRanksAreCalledByTheirNumbers) {
  const GroupMember member{nullptr, 1, 4, "world", {}};
  EXPECT_EQ(member.NameOf(3), 3);
  EXPECT_THAT(member.NamesOf({0, 2}), ElementsAre(0, 2));
  EXPECT_EQ(member.ToString(), "rank 1 of 4");
}

TEST(GroupMemberTest, ASubgroupsRanksAreCalledByTheJobsNumbers) {
  const GroupMember member{nullptr, 1, 2, "replicas of stage 0", {1, 3}};
  EXPECT_EQ(member.NameOf(0), 1);
  EXPECT_THAT(member.NamesOf({1, 0}), ElementsAre(3, 1));
  EXPECT_EQ(member.ToString(), "rank 3 of {1, 3}");
}

}  // namespace
}  // namespace tandem
