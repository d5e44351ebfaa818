#include "models/decoding/kv_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::kv_cache_test {
namespace {

using testing::HasSubstr;

// [n, 2, tokens, 3], other values for another `layer` and `first` token.
at::Tensor Keys(int64_t layer, int64_t first, int64_t tokens, int64_t n = 1) {
  return at::arange(n * 2 * tokens * 3, at::kFloat).view({n, 2, tokens, 3}) +
         static_cast<double>(1000 * layer + 100 * first);
}

// One pass of two layers; what the second gets.
KeysAndValues Pass(KvCache& cache, int64_t tokens, int64_t n = 1) {
  const DecodingScope scope(&cache);
  cache.Append(Keys(0, cache.past(), tokens, n),
               Keys(1, cache.past(), tokens, n));
  return cache.Append(Keys(2, cache.past(), tokens, n),
                      Keys(3, cache.past(), tokens, n));
}

template <typename Function>
std::string ErrorOf(const Function& function) {
  try {
    function();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(KvCacheTest, GivesAllOfALayerSoFar) {
  KvCache cache(6);
  Pass(cache, 3);
  EXPECT_EQ(cache.past(), 3);
  const KeysAndValues all = Pass(cache, 1);
  EXPECT_EQ(cache.past(), 4);
  EXPECT_TRUE(at::equal(all.keys, at::cat({Keys(2, 0, 3), Keys(2, 3, 1)}, 2)));
  EXPECT_TRUE(
      at::equal(all.values, at::cat({Keys(3, 0, 3), Keys(3, 3, 1)}, 2)));
}

TEST(KvCacheTest, TakesMemoryForItsCapacityOnce) {
  KvCache cache(6);
  EXPECT_EQ(cache.bytes(), 0u);
  const KeysAndValues first = Pass(cache, 1);
  EXPECT_EQ(cache.bytes(), 2u * 2 * (2 * 6 * 3) * sizeof(float));
  const KeysAndValues second = Pass(cache, 5);
  EXPECT_EQ(first.keys.data_ptr(), second.keys.data_ptr());
}

TEST(KvCacheTest, GoesOnFromWhereItIsTruncated) {
  KvCache cache(6);
  Pass(cache, 5);
  cache.Truncate(2);
  const KeysAndValues all = Pass(cache, 1);
  EXPECT_TRUE(at::equal(
      all.keys, at::cat({Keys(2, 0, 5).narrow(2, 0, 2), Keys(2, 2, 1)}, 2)));
}

TEST(KvCacheTest, AnEmptyOneTakesAnotherNumberOfSequences) {
  KvCache cache(6);
  Pass(cache, 5);
  cache.Truncate(0);
  EXPECT_TRUE(at::equal(Pass(cache, 4, 2).keys, Keys(2, 0, 4, 2)));
}

TEST(KvCacheTest, APassThatFailsLeavesItAsItWas) {
  KvCache cache(6);
  Pass(cache, 2);
  EXPECT_THAT(ErrorOf([&] { Pass(cache, 5); }),
              HasSubstr("5 tokens after 2 exceed its capacity of 6"));
  EXPECT_EQ(cache.past(), 2);
  EXPECT_EQ(Pass(cache, 4).keys.size(2), 6);
}

TEST(KvCacheTest, SizesThatDoNotFitAreRefused) {
  KvCache cache(6);
  Pass(cache, 2);
  EXPECT_THAT(
      ErrorOf([&] { Pass(cache, 1, 3); }),
      HasSubstr("keys or values [3, 2, 1, 3] [n, kv_heads, tokens, "
                "head] after 2 tokens, but its memory is [1, 2, 6, 3]"));
  EXPECT_THAT(ErrorOf([&] {
                const DecodingScope scope(&cache);
                cache.Append(Keys(0, 0, 1), Keys(0, 0, 1));
                cache.Append(Keys(0, 0, 2), Keys(0, 0, 2));
              }),
              HasSubstr("2 tokens in a pass in which others have 1"));
  EXPECT_THAT(ErrorOf([&] {
                const DecodingScope scope(&cache);
                cache.Append(Keys(0, 0, 1), Keys(0, 0, 2));
              }),
              HasSubstr("expected both as [n, kv_heads, tokens, head]"));
}

// A layer that was not there when the sequences began has no past.
TEST(KvCacheTest, AFurtherLayerIsRefusedInTheMiddle) {
  KvCache cache(6);
  Pass(cache, 2);
  EXPECT_THAT(ErrorOf([&] {
                const DecodingScope scope(&cache);
                for (int layer = 0; layer < 3; ++layer) {
                  cache.Append(Keys(0, 0, 1), Keys(0, 0, 1));
                }
              }),
              HasSubstr("go on with the sizes and layers"));
}

TEST(KvCacheTest, IsUsedInPasses) {
  KvCache cache(6);
  EXPECT_THAT(ErrorOf([&] { cache.Append(Keys(0, 0, 1), Keys(0, 0, 1)); }),
              HasSubstr("outside of a DecodingScope"));
  EXPECT_THAT(ErrorOf([&] { cache.Truncate(1); }),
              HasSubstr("KV cache of 0 tokens, between passes: cannot be "
                        "truncated to 1"));
  const DecodingScope scope(&cache);
  EXPECT_THAT(ErrorOf([&] { const DecodingScope inner(&cache); }),
              HasSubstr("a pass within a pass"));
  EXPECT_THAT(ErrorOf([&] { cache.Truncate(0); }), HasSubstr("in passes"));
  EXPECT_THAT(ErrorOf([] { KvCache none(0); }),
              HasSubstr("KV cache for 0 tokens: expected 1 or more"));
}

}  // namespace
}  // namespace tandem::kv_cache_test
