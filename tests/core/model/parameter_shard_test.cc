#include "core/model/parameter_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/model/parameter_traits.h"
#include "core/testing/statuses.h"

namespace tandem::parameter_shard_test {
namespace {

using Sizes = std::vector<int64_t>;

ParameterShard Cut(int64_t dim, int64_t blocks = 1) {
  return {"tensor", dim, blocks};
}

TEST(ParameterShardTest, EachBlockIsCutForItself) {
  // Query, key and value of width 4, side by side.
  const auto second = ShardRanges("c_attn.weight", {5, 12}, Cut(1, 3), 2, 1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(FormatShard(*second), "0+5;2+2,6+2,10+2");
  EXPECT_EQ(FormatShard(*ShardRanges("w", {12, 5}, Cut(0), 3, 2)), "8+4;0+5");
  EXPECT_EQ(FormatShard(*ShardRanges("w", {6}, Cut(0, 3), 2, 0)),
            "0+1,2+1,4+1");
}

TEST(ParameterShardTest, AllRanksTogetherHaveEachIndexOnce) {
  for (const int64_t degree : {1, 2, 3, 4, 6}) {
    for (const int64_t blocks : {1, 3}) {
      std::vector<int> times(36, 0);
      for (int64_t index = 0; index < degree; ++index) {
        const auto shard =
            ShardRanges("w", {2, 36}, Cut(1, blocks), degree, index);
        ASSERT_TRUE(shard.ok()) << shard.status();
        EXPECT_TRUE(CheckShard(*shard, {2, 36}).ok());
        const Sizes sizes = ShardSizes(*shard);
        EXPECT_EQ(sizes, (Sizes{2, 36 / degree}));
        EXPECT_EQ(*WholeSizes("w", sizes, Cut(1, blocks), degree),
                  (Sizes{2, 36}));
        for (const IndexRange& each : (*shard)[1]) {
          for (int64_t i = each.begin; i < each.end(); ++i) ++times[i];
        }
      }
      EXPECT_THAT(times, testing::Each(1)) << degree << " " << blocks;
    }
  }
}

TEST(ParameterShardTest, OneRankHasAllAndNothingIsSharedByAll) {
  EXPECT_EQ(*ShardRanges("w", {2, 6}, Cut(1, 3), 1, 0), WholeShard({2, 6}));
  EXPECT_EQ(*ShardRanges("w", {0, 6}, Cut(0, 3), 4, 3), WholeShard({0, 6}));
}

TEST(ParameterShardTest, WhatDoesNotDivideIsRefusedByName) {
  EXPECT_THAT(
      ShardRanges("fc.weight", {5, 10}, Cut(1, 3), 2, 0).status(),
      InvalidArgument("parameter fc.weight of shape [5, 10]", "along tensor",
                      "dimension 1 has 10 indices", "3 blocks x 2 ranks"));
  EXPECT_THAT(ShardRanges("fc.weight", {5, 10}, Cut(2), 2, 0).status(),
              InvalidArgument("fc.weight", "in dimension 2", "[5, 10]"));
  EXPECT_THAT(ShardRanges("scale", {}, Cut(0), 2, 0).status(),
              InvalidArgument("scale", "[]"));
  EXPECT_FALSE(ShardRanges("w", {4}, Cut(-1), 2, 0).ok());
  EXPECT_FALSE(ShardRanges("w", {4}, Cut(0, 0), 2, 0).ok());
  EXPECT_FALSE(ShardRanges("w", {4}, Cut(0, -2), 2, 0).ok());
  EXPECT_FALSE(
      ShardRanges("w", {4}, Cut(0, std::numeric_limits<int64_t>::max()), 2, 0)
          .ok());
  EXPECT_THAT(WholeSizes("fc.weight", {5, 4}, Cut(1, 3), 2).status(),
              InvalidArgument("fc.weight", "dimension 1 has 4 indices"));
}

TEST(ParameterTraitsTest, SayAlongWhichAxesRanksHaveTheSame) {
  ParameterTraits traits;
  EXPECT_TRUE(traits.is_alike_along("data"));
  EXPECT_TRUE(traits.is_alike_along("tensor"));
  EXPECT_FALSE(traits.is_alike_along("pipe"));
  traits.shard = Cut(0);
  EXPECT_TRUE(traits.is_alike_along("data"));
  EXPECT_FALSE(traits.is_alike_along("tensor"));
  traits.reduce_axes.clear();
  EXPECT_FALSE(traits.is_alike_along("data"));
}

TEST(ParameterTraitsTest, BlocksAreCompared) {
  ParameterTraits one, three;
  one.shard = Cut(1);
  three.shard = Cut(1, 3);
  EXPECT_FALSE(one == three);
  EXPECT_EQ(Describe(one),
            "reduced over data, dimension 1 sharded along tensor, group 0");
  EXPECT_EQ(Describe(three),
            "reduced over data, dimension 1 sharded along tensor in 3 blocks, "
            "group 0");
}

}  // namespace
}  // namespace tandem::parameter_shard_test
