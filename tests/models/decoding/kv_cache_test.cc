#include "models/decoding/kv_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>
#include <c10/util/Exception.h>

#include <string>
#include <thread>
#include <vector>

#include "core/model/layer_list.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/transformer/gpt.h"

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
std::string ErrorText(const Function& function) {
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
  EXPECT_THAT(ErrorText([&] { Pass(cache, 5); }),
              HasSubstr("5 tokens after 2 exceed its capacity of 6"));
  EXPECT_EQ(cache.past(), 2);
  EXPECT_EQ(Pass(cache, 4).keys.size(2), 6);
}

TEST(KvCacheTest, SizesThatDoNotFitAreRefused) {
  KvCache cache(6);
  Pass(cache, 2);
  EXPECT_THAT(
      ErrorText([&] { Pass(cache, 1, 3); }),
      HasSubstr("keys or values [3, 2, 1, 3] [n, kv_heads, tokens, "
                "head] after 2 tokens, but its memory is [1, 2, 6, 3]"));
  EXPECT_THAT(ErrorText([&] {
                const DecodingScope scope(&cache);
                cache.Append(Keys(0, 0, 1), Keys(0, 0, 1));
                cache.Append(Keys(0, 0, 2), Keys(0, 0, 2));
              }),
              HasSubstr("2 tokens in a pass in which others have 1"));
  EXPECT_THAT(ErrorText([&] {
                const DecodingScope scope(&cache);
                cache.Append(Keys(0, 0, 1), Keys(0, 0, 2));
              }),
              HasSubstr("expected both as [n, kv_heads, tokens, head]"));
}

// A layer that was not there when the sequences began has no past.
TEST(KvCacheTest, AFurtherLayerIsRefusedInTheMiddle) {
  KvCache cache(6);
  Pass(cache, 2);
  EXPECT_THAT(ErrorText([&] {
                const DecodingScope scope(&cache);
                for (int layer = 0; layer < 3; ++layer) {
                  cache.Append(Keys(0, 0, 1), Keys(0, 0, 1));
                }
              }),
              HasSubstr("go on with the sizes and layers"));
}

TEST(KvCacheTest, IsUsedInPasses) {
  KvCache cache(6);
  EXPECT_THAT(ErrorText([&] { cache.Append(Keys(0, 0, 1), Keys(0, 0, 1)); }),
              HasSubstr("outside of a DecodingScope"));
  EXPECT_THAT(ErrorText([&] { cache.Truncate(1); }),
              HasSubstr("KV cache of 0 tokens, between passes: cannot be "
                        "truncated to 1"));
  const DecodingScope scope(&cache);
  EXPECT_THAT(ErrorText([&] { const DecodingScope inner(&cache); }),
              HasSubstr("a pass within a pass"));
  EXPECT_THAT(ErrorText([&] { cache.Truncate(0); }), HasSubstr("in passes"));
  EXPECT_THAT(ErrorText([] { KvCache none(0); }),
              HasSubstr("KV cache for 0 tokens: expected 1 or more"));
}

constexpr int64_t kTokens = 7;

at::Tensor Values(int64_t heads, double phase) {
  return at::sin(at::arange(2 * heads * kTokens * 5, at::kFloat) * 0.37 + phase)
      .view({2, heads, kTokens, 5});
}

struct Inputs {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

Inputs Some(int64_t heads, int64_t kv_heads) {
  return {Values(heads, 0), Values(kv_heads, 1), Values(kv_heads, 2)};
}

// All tokens, in passes of so many.
at::Tensor InPasses(const Inputs& inputs, const std::vector<int64_t>& passes) {
  KvCache cache(kTokens);
  std::vector<at::Tensor> parts;
  for (const int64_t tokens : passes) {
    const int64_t past = cache.past();
    const DecodingScope scope(&cache);
    parts.push_back(CachedAttention(inputs.q.narrow(2, past, tokens),
                                    inputs.k.narrow(2, past, tokens),
                                    inputs.v.narrow(2, past, tokens), cache));
  }
  return at::cat(parts, 2);
}

TEST(CachedAttentionTest, IsCausalAttentionInAnyPasses) {
  for (const int64_t kv_heads : {6, 3, 2, 1}) {
    const Inputs inputs = Some(6, kv_heads);
    const at::Tensor whole = at::scaled_dot_product_attention(
        inputs.q, inputs.k.repeat_interleave(6 / kv_heads, 1),
        inputs.v.repeat_interleave(6 / kv_heads, 1), {}, 0,
        /*is_causal=*/true);
    for (const std::vector<int64_t>& passes :
         {std::vector<int64_t>{7}, {3, 4}, {1, 1, 1, 1, 1, 1, 1}, {2, 1, 4}}) {
      EXPECT_TRUE(InPasses(inputs, passes).allclose(whole, 1e-5, 1e-6))
          << kv_heads << " heads of keys, first pass of " << passes.front();
    }
  }
}

TEST(CachedAttentionTest, HeadsThatDoNotDivideAreRefused) {
  EXPECT_THROW(InPasses(Some(6, 4), {7}), c10::Error);
}

constexpr GptOptions kSmall = {/*layers=*/3, /*width=*/12, /*heads=*/3,
                               /*context=*/9, /*vocabulary=*/11};

at::Tensor Tokens() {
  return (at::arange(2 * kSmall.context, at::kLong) * 5 % kSmall.vocabulary)
      .view({2, kSmall.context});
}

at::Tensor InPasses(const LayerList& layers,
                    const std::vector<int64_t>& passes) {
  KvCache cache(kSmall.context);
  std::vector<at::Tensor> logits;
  for (const int64_t tokens : passes) {
    const DecodingScope scope(&cache);
    logits.push_back(Forward(layers, Tokens().narrow(1, cache.past(), tokens)));
  }
  return at::cat(logits, 1);
}

// The obvious wrong ways (positions that begin anew, a mask that is aligned
// with the first key) are off by more than a tenth.
TEST(DecodingScopeTest, TokenByTokenGptGivesTheLogitsOfTheWhole) {
  LayerList layers = MakeLayers(*Gpt(kSmall), 1);
  const at::NoGradGuard no_grad;
  for (const auto& parameter : NamedParameters(layers)) {
    if (parameter.second.dim() > 1) parameter.second.mul_(20);
  }
  const at::Tensor whole = Forward(layers, Tokens());
  for (const std::vector<int64_t>& passes : {std::vector<int64_t>{9},
                                             {5, 1, 1, 1, 1},
                                             {2, 4, 3},
                                             std::vector<int64_t>(9, 1)}) {
    const at::Tensor logits = InPasses(layers, passes);
    EXPECT_LE((logits - whole).abs().max().item<double>(),
              1e-5 * whole.abs().max().item<double>())
        << "first pass of " << passes.front();
  }
}

TEST(DecodingScopeTest, TokensBehindTheContextAreRefused) {
  const LayerList layers = MakeLayers(*Gpt(kSmall), 1);
  KvCache cache(kSmall.context + 1);
  {
    const DecodingScope scope(&cache);
    Forward(layers, Tokens());
  }
  const DecodingScope scope(&cache);
  EXPECT_THROW(Forward(layers, Tokens().narrow(1, 0, 1)), c10::Error);
}

TEST(DecodingScopeTest, ComputesNoGradients) {
  const LayerList layers = MakeLayers(*Gpt(kSmall), 1);
  EXPECT_TRUE(Forward(layers, Tokens()).requires_grad());
  KvCache cache(kSmall.context);
  const DecodingScope scope(&cache);
  EXPECT_FALSE(Forward(layers, Tokens()).requires_grad());
}

TEST(DecodingScopeTest, IsTheCallingThreadsInnermost) {
  EXPECT_EQ(DecodingScope::Current(), nullptr);
  EXPECT_EQ(DecodingScope::Past(), 0);
  KvCache outer(1);
  KvCache inner(1);
  const DecodingScope scope(&outer);
  {
    const DecodingScope nested(&inner);
    EXPECT_EQ(DecodingScope::Current(), &inner);
  }
  EXPECT_EQ(DecodingScope::Current(), &outer);
  std::thread([] { EXPECT_EQ(DecodingScope::Current(), nullptr); }).join();
}

}  // namespace
}  // namespace tandem::kv_cache_test
