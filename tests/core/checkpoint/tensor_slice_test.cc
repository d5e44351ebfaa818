#include "core/checkpoint/tensor_slice.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace tandem::tensor_slice_test {
namespace {

using Sizes = std::vector<int64_t>;

int64_t Elements(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1},
                         [](int64_t a, int64_t b) { return a * b; });
}

at::Tensor Numbered(const Sizes& sizes) {
  return at::arange(Elements(sizes)).view(sizes);
}

// Dense strides in which the dimensions follow each other so, fastest last.
Sizes StridesInOrder(const Sizes& sizes, const std::vector<size_t>& order) {
  Sizes strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= sizes[order[i]];
  }
  return strides;
}

// What a holder's memory has of the whole tensor, in its order.
at::Tensor Memory(const at::Tensor& whole, const TensorSlice& slice) {
  const at::Tensor held = SelectShard(whole, HeldShard(slice));
  const at::Tensor memory = at::full({held.numel()}, -1, at::kLong);
  memory.as_strided(held.sizes(), slice.strides).copy_(held);
  return memory;
}

// Every run of every order of the dimensions, of a shard in blocks.
TEST(TensorSliceTest, EveryRunGoesWhereItLiesInTheWhole) {
  const Sizes sizes = {3, 6, 2};
  const at::Tensor whole = Numbered(sizes);
  TensorSlice slice;
  slice.sizes = sizes;
  slice.shard = {{{0, 3}}, {{1, 1}, {4, 2}}, {{0, 2}}};
  const Sizes held = ShardSizes(slice.shard);
  std::vector<size_t> order = {0, 1, 2};
  const TensorShard wanted = {{{1, 2}}, {{0, 2}, {4, 1}}, {{1, 1}}};
  do {
    slice.strides = StridesInOrder(held, order);
    const at::Tensor memory = Memory(whole, slice);
    for (slice.begin = 0; slice.begin <= memory.numel(); ++slice.begin) {
      for (int64_t n = 0; n <= memory.numel() - slice.begin; ++n) {
        const at::Tensor run = memory.narrow(0, slice.begin, n);
        const at::Tensor all = at::full(sizes, -1, at::kLong);
        CopySlice(slice, run, WholeShard(sizes), all);
        // Each of the run's elements at its place, and no others.
        ASSERT_EQ(all.ne(-1).sum().item<int64_t>(), n);
        ASSERT_TRUE(all.eq(whole).logical_or(all.eq(-1)).all().item<bool>());
        if (n > 0) {
          ASSERT_TRUE(all.flatten().index_select(0, run).equal(run));
        }
        const at::Tensor part = at::full(ShardSizes(wanted), -1, at::kLong);
        CopySlice(slice, run, wanted, part);
        ASSERT_TRUE(part.equal(SelectShard(all, wanted)));
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(TensorSliceTest, TheCommonRunIsTheShortestWithAllThatIsCommon) {
  const Sizes sizes = {4, 6};
  const at::Tensor whole = Numbered(sizes);
  TensorSlice slice;
  slice.sizes = sizes;
  for (const Sizes& strides : {Sizes{6, 1}, Sizes{1, 4}}) {
    slice.strides = strides;
    const at::Tensor memory = Memory(whole, slice);
    for (const TensorShard& wanted : std::vector<TensorShard>{
             WholeShard(sizes),
             {{{1, 2}}, {{0, 6}}},
             {{{0, 4}}, {{1, 1}, {4, 1}}},
             {{{3, 1}}, {{5, 1}}},
         }) {
      const at::Tensor elements = SelectShard(whole, wanted).flatten();
      for (slice.begin = 0; slice.begin <= 24; ++slice.begin) {
        for (int64_t n = 0; n <= 24 - slice.begin; ++n) {
          std::vector<int64_t> places;
          for (int64_t at = slice.begin; at < slice.begin + n; ++at) {
            if (elements.eq(memory[at]).any().item<bool>()) {
              places.push_back(at);
            }
          }
          const IndexRange run = CommonRun(slice, n, wanted);
          // Runs may be taken for longer at their ends, where they are cut.
          if (places.empty()) continue;
          ASSERT_LE(run.begin, places.front());
          ASSERT_GE(run.end(), places.back() + 1);
          ASSERT_GE(run.begin, slice.begin);
          ASSERT_LE(run.end(), slice.begin + n);
        }
      }
      slice.begin = 0;
      const IndexRange all = CommonRun(slice, 24, wanted);
      const at::Tensor memory_of_run = memory.narrow(0, all.begin, all.length);
      EXPECT_TRUE(elements.eq(memory_of_run[0]).any().item<bool>());
      EXPECT_TRUE(
          elements.eq(memory_of_run[all.length - 1]).any().item<bool>());
    }
  }
  slice = {{4, 6}, {6, 1}, 0, {{{0, 2}}, {{0, 6}}}};
  EXPECT_EQ(CommonRun(slice, 12, {{{2, 2}}, {{0, 6}}}).length, 0);
  EXPECT_EQ(CommonRun({{0, 6}, {6, 1}, 0}, 0, WholeShard({0, 6})).length, 0);
}

TEST(TensorSliceTest, AScalarIsASliceOfItself) {
  const at::Tensor target = at::full({}, 0, at::kLong);
  CopySlice(SliceOfShard({}, {}), at::full({}, 7, at::kLong), {}, target);
  EXPECT_EQ(target.item<int64_t>(), 7);
  EXPECT_EQ(CommonRun(SliceOfShard({}, {}), 1, {}).length, 1);
}

// Values may be of any shape: their row-major order is the slice's.
TEST(TensorSliceTest, AShardIsItsOwnSlice) {
  const at::Tensor whole = Numbered({4, 6});
  const TensorShard shard = {{{0, 4}}, {{0, 2}, {4, 2}}};
  const at::Tensor held = SelectShard(whole, shard).t().contiguous().t();
  const at::Tensor all = at::full({4, 6}, -1, at::kLong);
  CopySlice(SliceOfShard({4, 6}, shard), held, WholeShard({4, 6}), all);
  EXPECT_TRUE(SelectShard(all, shard).equal(held));
  EXPECT_EQ(all.ne(-1).sum().item<int64_t>(), 16);
}

TEST(TensorSliceTest, TextsComeBackAsTheyWere) {
  for (const char* text : {"6;2,3;3,1", "0;;", "0;5;1"}) {
    TensorSlice slice;
    ASSERT_TRUE(ParseSlice(text, &slice)) << text;
    EXPECT_EQ(FormatSlice(slice), text);
  }
  for (const char* text :
       {"", "6", "6;2", "x;2;1", "6;a;1", "6;2;b", "6;2;1;0"}) {
    TensorSlice slice;
    EXPECT_FALSE(ParseSlice(text, &slice)) << text;
  }
}

}  // namespace
}  // namespace tandem::tensor_slice_test
