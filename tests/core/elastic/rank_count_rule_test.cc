#include <string>

#include "core/elastic/rank_counts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::rank_count_rule_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RankCountRule Rule(int least, int most) {
  return RankCountRule(*RankCounts::Of({least, most}, 1, nullptr), "");
}

// All were started, and `rank` died first.
std::string Dies(RankCountRule& rule, int rank,
                 const std::string& progress = "") {
  return rule.NoteEnd({rule.ranks(), rank, progress});
}

TEST(RankCountRuleTest, TheSameRankTwiceInARowIsLeftOut) {
  RankCountRule rule = Rule(1, 3);
  EXPECT_EQ(Dies(rule, 2), "");
  EXPECT_EQ(rule.ranks(), 3);
  EXPECT_THAT(Dies(rule, 2),
              AllOf(HasSubstr("goes on with 2 ranks instead of 3"),
                    HasSubstr("rank 2 was the first to die")));
  EXPECT_EQ(rule.ranks(), 2);
}

TEST(RankCountRuleTest, DifferentRanksAreNot) {
  RankCountRule rule = Rule(1, 3);
  for (const int rank : {2, 1, 2, 0, 1}) EXPECT_EQ(Dies(rule, rank), "");
  EXPECT_EQ(rule.ranks(), 3);
}

TEST(RankCountRuleTest, NorIsARankBetweenWhoseDeathsACheckpointCame) {
  RankCountRule rule = Rule(1, 3);
  EXPECT_EQ(Dies(rule, 2, "step-4"), "");
  EXPECT_EQ(Dies(rule, 2, "step-8"), "");
  EXPECT_EQ(rule.ranks(), 3);
  EXPECT_NE(Dies(rule, 2, "step-8"), "");
  EXPECT_EQ(rule.ranks(), 2);
}

TEST(RankCountRuleTest, FewerRanksBeginToCountAnew) {
  RankCountRule rule = Rule(1, 3);
  Dies(rule, 1);
  Dies(rule, 1);
  EXPECT_EQ(rule.ranks(), 2);
  EXPECT_EQ(Dies(rule, 1), "");
  EXPECT_EQ(rule.ranks(), 2);
  EXPECT_THAT(Dies(rule, 1), HasSubstr("goes on with 1 rank instead of 2"));
}

TEST(RankCountRuleTest, WhatCannotBeStartedIsLeftOutAtOnce) {
  RankCountRule rule = Rule(2, 7);
  EXPECT_THAT(rule.NoteEnd({4, std::nullopt, ""}),
              HasSubstr("goes on with 4 ranks instead of 7: no more than 4 "
                        "could be started"));
  EXPECT_EQ(rule.ranks(), 4);
}

TEST(RankCountRuleTest, NotUnderTheLeast) {
  RankCountRule rule = Rule(3, 3);
  Dies(rule, 0);
  EXPECT_THAT(
      Dies(rule, 0),
      HasSubstr("but the job cannot run on fewer than 3 (it can on 3)"));
  EXPECT_EQ(rule.ranks(), 3);
  EXPECT_THAT(rule.NoteEnd({2, std::nullopt, ""}), HasSubstr("cannot run"));
  EXPECT_EQ(rule.ranks(), 3);
}

TEST(RankCountRuleTest, ProgressBringsAllBack) {
  RankCountRule rule = Rule(1, 3);
  Dies(rule, 2);
  Dies(rule, 2);
  EXPECT_THAT(Dies(rule, 0, "step-4"),
              HasSubstr("goes on with 3 ranks instead of 2: a checkpoint"));
  EXPECT_EQ(rule.ranks(), 3);
}

}  // namespace
}  // namespace tandem::rank_count_rule_test
