// Heads of attention: which elements are whose, and back.

#include "models/functions/attention_heads.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem {
namespace {

// Two samples of three tokens; two heads of queries, keys and values, of width
// 2 each: element [sample, token, (part, head, i)].
TEST(AttentionHeadsTest, HeadsLieSideBySideWithinEachPart) {
  const torch::Tensor qkv = torch::arange(2 * 3 * 12).view({2, 3, 12});
  const std::vector<torch::Tensor> parts = HeadsOf(qkv, 2);
  ASSERT_EQ(parts.size(), 3u);
  for (int64_t part = 0; part < 3; ++part) {
    const torch::Tensor& its = parts[static_cast<size_t>(part)];
    ASSERT_EQ(its.sizes(), torch::IntArrayRef({2, 2, 3, 2}));
    for (int64_t head = 0; head < 2; ++head) {
      const int64_t first = 4 * part + 2 * head;
      EXPECT_TRUE(its.select(1, head).equal(qkv.narrow(2, first, 2)));
    }
  }
}

TEST(AttentionHeadsTest, JoiningUndoesIt) {
  const torch::Tensor qkv = torch::randn({2, 5, 18});
  const std::vector<torch::Tensor> parts = HeadsOf(qkv, 3);
  EXPECT_TRUE(JoinHeads(parts[1]).equal(qkv.narrow(2, 6, 6)));
}

}  // namespace
}  // namespace tandem
