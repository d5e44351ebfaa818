#include <string>

#include "core/elastic/rank_counts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::rank_limits_test {
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
  return std::string(RankLimitsOf(request).status().message());
}

TEST(RankLimitsTest, WithoutFlagsNothingChanges) {
  EXPECT_FALSE(RankLimitsOf(Request(3, 2))->elastic());
}

TEST(RankLimitsTest, TheMostIsWhatAllNodesCanStart) {
  RankRequest request = Request(3, 2);
  request.min_ranks = 1;
  EXPECT_EQ(RankLimitsOf(request)->least, 1);
  EXPECT_EQ(RankLimitsOf(request)->most, 6);
  request.max_ranks = 5;  // whole nodes
  EXPECT_EQ(RankLimitsOf(request)->most, 4);
}

TEST(RankLimitsTest, OneNodeTakesAnyNumber) {
  RankRequest request = Request(1, 7);
  request.min_ranks = 5;
  request.max_ranks = 5;
  EXPECT_EQ(RankLimitsOf(request)->least, 5);
  EXPECT_EQ(RankLimitsOf(request)->most, 5);
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

}  // namespace
}  // namespace tandem::rank_limits_test
