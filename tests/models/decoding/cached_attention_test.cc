
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>

#include <vector>

#include "gtest/gtest.h"
#include "models/decoding/kv_cache.h"

namespace tandem::cached_attention_test {
namespace {

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

}  // namespace
}  // namespace tandem::cached_attention_test
