#include "core/elastic/rank_counts.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::rank_counts_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RankRequest Request(int nnodes, int nproc) {
  RankRequest request;
  request.nnodes = nnodes;
  request.nproc_per_node = nproc;
  request.max_restarts = 1;
  return request;
}

std::string ErrorOf(const RankRequest& request) {
  return std::string(ResolveRankLimits(request).status().message());
}

TEST(RankLimitsTest, WithoutFlagsNothingChanges) {
  EXPECT_FALSE(ResolveRankLimits(Request(3, 2))->elastic());
}

TEST(RankLimitsTest, TheMostIsWhatAllNodesCanStart) {
  RankRequest request = Request(3, 2);
  request.min_ranks = 1;
  EXPECT_EQ(ResolveRankLimits(request)->least, 1);
  EXPECT_EQ(ResolveRankLimits(request)->most, 6);
  request.max_ranks = 5;  // whole nodes
  EXPECT_EQ(ResolveRankLimits(request)->most, 4);
}

TEST(RankLimitsTest, OneNodeTakesAnyNumber) {
  RankRequest request = Request(1, 7);
  request.min_ranks = 5;
  request.max_ranks = 5;
  EXPECT_EQ(ResolveRankLimits(request)->least, 5);
  EXPECT_EQ(ResolveRankLimits(request)->most, 5);
}

TEST(RankLimitsTest, WhatContradictsIsRefused) {
  RankRequest request = Request(1, 3);
  request.max_ranks = 2;
  EXPECT_THAT(ErrorOf(request), HasSubstr("without --min_ranks"));
  request.min_ranks = 0;
  EXPECT_THAT(ErrorOf(request), HasSubstr("--min_ranks=0 must be at least 1"));
  request.min_ranks = 3;
  EXPECT_THAT(ErrorOf(request),
              HasSubstr("--min_ranks=3 is more than --max_ranks=2"));
  request.max_ranks = 4;
  EXPECT_THAT(ErrorOf(request),
              AllOf(HasSubstr("--max_ranks=4 is too many"),
                    HasSubstr("--nproc_per_node=3 on 1 node can start 3")));
  request.max_ranks.reset();
  request.min_ranks = 4;
  EXPECT_THAT(ErrorOf(request), HasSubstr("--min_ranks=4 is too many"));
  request = Request(2, 3);
  request.min_ranks = 4;
  request.max_ranks = 5;
  EXPECT_THAT(ErrorOf(request),
              HasSubstr("--max_ranks=5 has in whole nodes, 3"));
  request.min_ranks = 3;
  request.max_restarts = 0;
  EXPECT_THAT(ErrorOf(request), HasSubstr("needs --max_restarts"));
}

using ::testing::AllOf;
using ::testing::HasSubstr;

RankCounts::Fits MultipleOf(int pipe) {
  return [=](int ranks) {
    return ranks % pipe == 0
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     absl::StrCat("--pipe=", pipe, " does not divide ", ranks));
  };
}

TEST(RankCountsTest, AllThatFit) {
  const auto counts = RankCounts::Of({1, 7}, 1, nullptr);
  EXPECT_EQ(counts->most(), 7);
  EXPECT_EQ(counts->AtMost(3), 3);
  EXPECT_EQ(counts->AtMost(100), 7);
  EXPECT_EQ(counts->AtMost(0), std::nullopt);
  EXPECT_EQ(RankCounts::Of({3, 3}, 1, nullptr)->ToString(), "3");
}

TEST(RankCountsTest, ALayoutLeavesSomeOut) {
  const auto counts = RankCounts::Of({1, 6}, 1, MultipleOf(2));
  EXPECT_EQ(counts->ToString(), "2, 4 or 6");
  EXPECT_EQ(counts->AtMost(5), 4);
  EXPECT_EQ(counts->AtMost(1), std::nullopt);
}

TEST(RankCountsTest, NodesComeWhole) {
  EXPECT_EQ(RankCounts::Of({1, 9}, 3, nullptr)->ToString(), "3, 6 or 9");
  EXPECT_EQ(RankCounts::Of({4, 9}, 3, MultipleOf(3))->ToString(), "6 or 9");
}

TEST(RankCountsTest, TheMostMustFit) {
  EXPECT_EQ(RankCounts::Of({1, 7}, 1, MultipleOf(2)).status().message(),
            "--pipe=2 does not divide 7");
}

TEST(RankCountsTest, ALayoutThatCannotBeCutIsSaid) {
  const auto counts = RankCounts::Of({3, 4}, 1, MultipleOf(4));
  EXPECT_THAT(std::string(counts.status().message()),
              AllOf(HasSubstr("of 3 to 4 ranks this job can run on 4 alone"),
                    HasSubstr("--pipe=4 does not divide 3")));
}

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
}  // namespace tandem::rank_counts_test
