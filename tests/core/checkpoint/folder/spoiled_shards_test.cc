// Shards of several ranks that make up no tensor.

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/testing/statuses.h"
#include "tests/core/testing/test_files.h"

namespace tandem::spoiled_shards_test {
namespace {

// Four ranks' columns of [2, 8], as each test then spoils them.
class SpoiledShardsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int64_t i = 0; i < 4; ++i) {
      StatePart& part = parts_.emplace_back();
      part.tensors = {{"w", at::full({2, 2}, i)}};
      part.slices["w"] = SliceOfShard({2, 8}, {{{0, 2}}, {{2 * i, 2}}});
    }
  }
  // What a save says of them.
  absl::Status Written() {
    const std::string folder = NewTestFolder("spoiled");
    std::vector<std::string> shards;
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      shards.push_back(ShardName(static_cast<int>(rank)));
      TANDEM_RETURN_IF_ERROR(
          WriteShard(absl::StrCat(folder, "/", shards.back()), parts_[rank]));
    }
    return CollectShards(folder, shards).status();
  }

  std::vector<StatePart> parts_;
};

TEST_F(SpoiledShardsTest, WholeOnesAreWritten) { ExpectOk(Written()); }

TEST_F(SpoiledShardsTest, AHoleIsRefusedByName) {
  parts_.erase(parts_.begin() + 2);
  EXPECT_THAT(Written(),
              InvalidArgument("tensor w has 16 elements, its shards 12"));
}

TEST_F(SpoiledShardsTest, WhatTwoRanksHaveIsRefusedByName) {
  parts_.push_back(parts_[1]);
  EXPECT_THAT(Written(), InvalidArgument("tensor w has a piece"));
  parts_.pop_back();
  parts_[1].slices["w"].shard = {{{0, 2}}, {{1, 2}}};
  EXPECT_THAT(Written(), InvalidArgument("tensor w has shards that overlap",
                                         "along dimension 1"));
  // A rank that takes it for whole.
  parts_[1].tensors[0].second = at::full({2, 8}, 1);
  parts_[1].slices.clear();
  EXPECT_THAT(Written(), InvalidArgument("tensor w has shards that overlap"));
}

TEST_F(SpoiledShardsTest, WhatLiesOutsideIsRefusedByName) {
  parts_[3].slices["w"].shard = {{{0, 2}}, {{7, 2}}};
  EXPECT_THAT(Written(), InvalidArgument("tensor w has ranges '7+2'",
                                         "dimension 1", "8 indices"));
  parts_[3].slices["w"].shard = {{{0, 2}}};
  EXPECT_THAT(Written(), InvalidArgument("tensor w has a shard of 1 dimens"));
  parts_[3].slices["w"] = SliceOfShard({2, 8}, {{{0, 2}}, {{6, 2}}});
  parts_[3].slices["w"].begin = 1;
  EXPECT_THAT(Written(), InvalidArgument("tensor w has a piece of elements 1"));
  parts_[3].slices["w"].begin = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Written(), InvalidArgument("tensor w begins at element"));
}

TEST_F(SpoiledShardsTest, WhatDoesNotFitItsShardIsRefusedByName) {
  parts_[3].tensors[0].second = at::full({2, 1}, 3);
  EXPECT_THAT(Written(),
              InvalidArgument("tensor w has 4 elements, its pieces 2"));
  parts_[3].tensors[0].second = at::full({2, 2}, 3);
  parts_[3].slices["w"].strides = {1, 1};
  EXPECT_THAT(Written(), InvalidArgument("tensor w has strides"));
}

TEST_F(SpoiledShardsTest, RanksWithDifferentTensorsAreRefusedByName) {
  parts_[2].slices["w"].sizes = {2, 10};
  EXPECT_THAT(Written(), InvalidArgument("tensor w is another one"));
  parts_[2].slices["w"].sizes = {2, 8};
  parts_[2].tensors[0].second = at::full({2, 2}, 2, at::kDouble);
  EXPECT_THAT(Written(), InvalidArgument("tensor w is another one"));
}

}  // namespace
}  // namespace tandem::spoiled_shards_test
