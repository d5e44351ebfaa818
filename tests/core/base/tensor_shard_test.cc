#include "core/base/tensor_shard.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tandem::tensor_shard_test {
namespace {

using Sizes = std::vector<int64_t>;

at::Tensor Numbered(const Sizes& sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return at::arange(elements).view(sizes);
}

std::vector<int64_t> Indices(const IndexRanges& ranges) {
  std::vector<int64_t> indices;
  for (const IndexRange& each : ranges) {
    for (int64_t i = each.begin; i < each.end(); ++i) indices.push_back(i);
  }
  return indices;
}

// What a shard has, index by index.
at::Tensor Picked(const at::Tensor& whole, const TensorShard& shard) {
  at::Tensor picked = whole;
  for (size_t dim = 0; dim < shard.size(); ++dim) {
    picked = at::index_select(picked, static_cast<int64_t>(dim),
                              at::tensor(Indices(shard[dim]), at::kLong));
  }
  return picked;
}

// Ranges of a dimension of 7: whole, cut, in blocks, single indices.
std::vector<IndexRanges> RangesOfSeven() {
  return {{{0, 7}},        {{0, 1}},         {{6, 1}},
          {{2, 3}},        {{0, 2}, {4, 2}}, {{1, 1}, {3, 1}, {5, 2}},
          {{0, 3}, {3, 4}}};
}

TEST(TensorShardTest, SizesAreThoseOfTheIndicesSideBySide) {
  EXPECT_EQ(ShardSizes({{{0, 2}, {6, 2}}, {{0, 5}}}), (Sizes{4, 5}));
  EXPECT_EQ(ShardSizes({}), Sizes{});
  EXPECT_EQ(ShardSizes(WholeShard({3, 0, 7})), (Sizes{3, 0, 7}));
}

TEST(TensorShardTest, WhatTwoShardsHaveInCommonStandsInBoth) {
  const auto common = CommonRanges({{0, 2}, {6, 2}}, {{1, 6}});
  ASSERT_EQ(common.size(), 2u);
  EXPECT_EQ(common[0].in_first, 1);
  EXPECT_EQ(common[0].in_second, 0);
  EXPECT_EQ(common[0].length, 1);
  EXPECT_EQ(common[1].in_first, 2);
  EXPECT_EQ(common[1].in_second, 5);
  EXPECT_EQ(common[1].length, 1);
  EXPECT_TRUE(CommonRanges({{0, 3}}, {{3, 2}}).empty());
  EXPECT_TRUE(CommonRanges({{0, 0}}, {{0, 0}}).empty());
}

TEST(TensorShardTest, AShardIsItsIndices) {
  const at::Tensor whole = Numbered({7, 2, 7});
  for (const IndexRanges& first : RangesOfSeven()) {
    for (const IndexRanges& last : RangesOfSeven()) {
      const TensorShard shard = {first, {{0, 2}}, last};
      ASSERT_TRUE(CheckShard(shard, {7, 2, 7}).ok());
      EXPECT_TRUE(SelectShard(whole, shard).equal(Picked(whole, shard)))
          << FormatShard(shard);
    }
  }
  // Nothing is copied that lies side by side.
  EXPECT_TRUE(
      SelectShard(whole, {{{2, 3}}, {{1, 1}}, {{0, 7}}}).is_alias_of(whole));
}

TEST(TensorShardTest, AShardOfAShardIsOneOfTheWhole) {
  const at::Tensor whole = Numbered({7, 3});
  for (const IndexRanges& ranges : RangesOfSeven()) {
    const TensorShard outer = {ranges, {{0, 1}, {2, 1}}};
    const at::Tensor held = Picked(whole, outer);
    for (const IndexRanges& inner : RangesOfSeven()) {
      const TensorShard within = {inner, {{1, 1}}};
      if (!CheckShard(within, ShardSizes(outer)).ok()) continue;
      const TensorShard own = ShardOfShard(outer, within);
      ASSERT_TRUE(CheckShard(own, {7, 3}).ok()) << FormatShard(own);
      EXPECT_TRUE(Picked(whole, own).equal(Picked(held, within)))
          << FormatShard(outer) << " " << FormatShard(within);
    }
  }
}

// What the target does not have in common with the source stays.
TEST(TensorShardTest, WhatIsCommonIsCopied) {
  const at::Tensor whole = Numbered({7, 7});
  const TensorShard all = WholeShard({7, 7});
  for (const IndexRanges& from_rows : RangesOfSeven()) {
    for (const IndexRanges& to_rows : RangesOfSeven()) {
      const TensorShard from = {from_rows, {{0, 2}, {4, 3}}};
      const TensorShard to = {to_rows, {{1, 5}}};
      const at::Tensor target = at::full(ShardSizes(to), -1, at::kLong);
      CopyCommon(Picked(whole, from), from, target, to);
      at::Tensor expected = at::full({7, 7}, -1, at::kLong);
      CopyCommon(Picked(whole, from), from, expected, all);
      EXPECT_EQ(expected.ne(-1).sum().item<int64_t>(),
                Picked(whole, from).numel());
      EXPECT_TRUE(
          expected.eq(whole).logical_or(expected.eq(-1)).all().item<bool>());
      EXPECT_TRUE(target.equal(Picked(expected, to)))
          << FormatShard(from) << " " << FormatShard(to);
    }
  }
}

TEST(TensorShardTest, AScalarAndNothingAreCopiedToo) {
  const at::Tensor scalar = at::full({}, 3);
  const at::Tensor target = at::full({}, 0);
  CopyCommon(scalar, {}, target, {});
  EXPECT_EQ(target.item<int64_t>(), 3);
  const TensorShard nothing = WholeShard({0, 5});
  CopyCommon(at::full({0, 5}, 1), nothing, at::full({0, 5}, 2), nothing);
  EXPECT_EQ(SelectShard(at::full({0, 5}, 1), {{{0, 0}}, {{1, 2}}}).size(1), 2);
}

TEST(TensorShardTest, WhatIsNoShardIsRefusedByItsDimension) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const std::pair<TensorShard, const char*> cases[] = {
      {{{{0, 7}}}, "1 dimensions where [7, 0] has 2"},
      {{{}, {{0, 0}}}, "ranges '' of dimension 0"},
      {{{{0, 8}}, {{0, 0}}}, "ranges '0+8' of dimension 0"},
      {{{{7, 1}}, {{0, 0}}}, "its 7 indices"},
      {{{{-1, 2}}, {{0, 0}}}, "'-1+2'"},
      {{{{0, 0}}, {{0, 0}}}, "'0+0' of dimension 0"},
      {{{{3, -1}}, {{0, 0}}}, "'3+-1'"},
      {{{{0, 3}, {2, 3}}, {{0, 0}}}, "'0+3,2+3'"},
      {{{{4, 1}, {2, 1}}, {{0, 0}}}, "expected rising ones"},
      {{{{1, most}}, {{0, 0}}}, "of dimension 0"},
      {{{{most, most}}, {{0, 0}}}, "of dimension 0"},
      {{{{0, 7}}, {{0, 1}}}, "of dimension 1"},
      {{{{0, 7}}, {{0, 0}, {0, 0}}}, "of dimension 1"},
  };
  for (const auto& [shard, message] : cases) {
    const absl::Status status = CheckShard(shard, {7, 0});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(message));
  }
  EXPECT_FALSE(CheckShard({{{0, 1}}}, {-1}).ok());
}

TEST(TensorShardTest, TextsComeBackAsTheyWere) {
  for (const char* text : {"", "0+7", "0+2,6+2;0+5", "0+0;1+2;3+4"}) {
    TensorShard shard;
    ASSERT_TRUE(ParseShard(text, &shard)) << text;
    EXPECT_EQ(FormatShard(shard), text);
  }
  for (const char* text : {"0", "0+", "+1", "0+1,", "0+1+2", "a+1", "0+1;b",
                           "0+99999999999999999999"}) {
    TensorShard shard;
    EXPECT_FALSE(ParseShard(text, &shard)) << text;
  }
}

}  // namespace
}  // namespace tandem::tensor_shard_test
