// Shards of parameters in closed form.

#include "core/model/axis/shard.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/testing/axis_ranks.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"

namespace tandem::shard_test {
namespace {

TEST(RangeOfRankTest, IsAsEvenAsCanBe) {
  for (const int64_t size : {0, 1, 2, 7, 12, 50257}) {
    for (const int64_t degree : {1, 2, 3, 4, 13}) {
      int64_t end = 0;
      for (int64_t index = 0; index < degree; ++index) {
        const ShardRange range = RangeOfRank(size, degree, index);
        EXPECT_EQ(range.begin, end);
        EXPECT_EQ(range.size, size / degree + (index < size % degree ? 1 : 0));
        end += range.size;
      }
      EXPECT_EQ(end, size);
    }
  }
}

at::Tensor Matrix(int64_t rows, int64_t columns) {
  return at::arange(rows * columns).view({rows, columns});
}

TEST(TakeShardTest, IsThatPartOfEachBlock) {
  const at::Tensor whole = Matrix(2, 12);
  ParameterShard shard;
  shard.dim = 1;
  shard.blocks = 3;
  const at::Tensor second = TakeShard(whole, shard, 2, 1);
  EXPECT_TRUE(second.equal(at::cat(
      {whole.narrow(1, 2, 2), whole.narrow(1, 6, 2), whole.narrow(1, 10, 2)},
      1)));
  EXPECT_TRUE(second.is_contiguous());
  shard.blocks = 1;
  EXPECT_TRUE(TakeShard(whole, shard, 3, 2).equal(whole.narrow(1, 8, 4)));
}

TEST(TakeShardTest, TheFirstRanksHaveMoreRowsWhereTheyMust) {
  const at::Tensor whole = Matrix(7, 2);
  ParameterShard shard;
  shard.uneven_size = 7;
  EXPECT_TRUE(TakeShard(whole, shard, 3, 0).equal(whole.narrow(0, 0, 3)));
  EXPECT_TRUE(TakeShard(whole, shard, 3, 1).equal(whole.narrow(0, 3, 2)));
  EXPECT_TRUE(TakeShard(whole, shard, 3, 2).equal(whole.narrow(0, 5, 2)));
}

TEST(KeepShardTest, TheParameterItselfBecomesItsPart) {
  ExpectOk(RunAxisRanks(2, [](const auto& group) {
    const at::Tensor parameter = Matrix(4, 3).to(at::kFloat).requires_grad_();
    const at::Tensor same = parameter;
    KeepShard(parameter, ParameterShard(), *group);
    EXPECT_TRUE(same.equal(
        Matrix(4, 3).to(at::kFloat).narrow(0, 2 * group->index(), 2)));
    EXPECT_TRUE(same.requires_grad());
    EXPECT_TRUE(same.is_leaf());
    // The whole is gone.
    EXPECT_EQ(same.storage().nbytes(), 6 * sizeof(float));
    return absl::OkStatus();
  }));
}

TEST(ParameterTraitsTest, APlaceAddsToWhatIsSaid) {
  ParameterTraits place;
  place.reduce_axes = {"data", "tensor"};
  place.shard = ParameterShard();
  place.shard->axis = "tensor";
  ParameterTraits said;
  said.optimizer_group = 2;
  const ParameterTraits both = WithPlace(said, place);
  EXPECT_EQ(both.reduce_axes, place.reduce_axes);
  EXPECT_EQ(both.shard, place.shard);
  EXPECT_EQ(both.optimizer_group, 2);
  // Twice is once, and what is not averaged stays so.
  EXPECT_EQ(WithPlace(both, place), both);
  said.reduce_axes = {};
  EXPECT_EQ(WithPlace(said, place).reduce_axes,
            std::vector<std::string>{"tensor"});
}

TEST(ParameterTraitsTest, MessagesNameBlocksAndUnevenSizes) {
  ParameterTraits traits;
  traits.shard = ParameterShard();
  traits.shard->axis = "tensor";
  traits.shard->blocks = 3;
  EXPECT_EQ(Describe(traits),
            "reduced over data, dimension 0 sharded along tensor in 3 blocks, "
            "group 0");
  traits.shard->blocks = 1;
  traits.shard->uneven_size = 7;
  EXPECT_EQ(Describe(traits),
            "reduced over data, dimension 0 sharded along tensor, of 7, group "
            "0");
}

}  // namespace
}  // namespace tandem::shard_test
