// Heads of attention: which elements are whose, and back.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "models/functions/causal_attention_function.h"

namespace tandem::attention_heads_test {
namespace {

// Two samples of three tokens; two heads of queries, keys and values, of width
// 2 each: element [sample, token, (part, head, i)].
TEST(AttentionHeadsTest, HeadsLieSideBySideWithinEachPart) {
  const at::Tensor qkv = at::arange(2 * 3 * 12).view({2, 3, 12});
  const std::vector<at::Tensor> parts = SplitHeads(qkv, 2);
  ASSERT_EQ(parts.size(), 3u);
  for (int64_t part = 0; part < 3; ++part) {
    const at::Tensor& its = parts[static_cast<size_t>(part)];
    ASSERT_EQ(its.sizes(), at::IntArrayRef({2, 2, 3, 2}));
    for (int64_t head = 0; head < 2; ++head) {
      const int64_t first = 4 * part + 2 * head;
      EXPECT_TRUE(its.select(1, head).equal(qkv.narrow(2, first, 2)));
    }
  }
}

TEST(AttentionHeadsTest, JoiningUndoesIt) {
  const at::Tensor qkv = at::randn({2, 5, 18});
  const std::vector<at::Tensor> parts = SplitHeads(qkv, 3);
  EXPECT_TRUE(JoinHeads(parts[1]).equal(qkv.narrow(2, 6, 6)));
}

}  // namespace
}  // namespace tandem::attention_heads_test
