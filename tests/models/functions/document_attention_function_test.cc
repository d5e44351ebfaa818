
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <vector>

#include "models/functions/causal_attention_function.h"

namespace tandem::document_attention_function_test {
namespace {

using torch::autograd::grad;

constexpr int64_t kHeads = 3;
constexpr int64_t kTokens = 9;

// Documents of 2, 1 and 6 tokens, and one of 9.
at::Tensor Begins() {
  return at::tensor({0, 0, 2, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                    at::kLong)
      .view({2, kTokens});
}

at::Tensor EachAlone(const at::Tensor& qkv) {
  std::vector<at::Tensor> first;
  for (const auto& part : qkv.narrow(0, 0, 1).split_with_sizes({2, 1, 6}, 1)) {
    first.push_back(CausalAttentionFunction(part, kHeads));
  }
  return at::cat({at::cat(first, 1),
                  CausalAttentionFunction(qkv.narrow(0, 1, 1), kHeads)});
}

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

using Attention = at::Tensor (*)(const at::Tensor& qkv, int64_t heads,
                                 const at::Tensor& begins);

TEST(DocumentAttentionFunctionTest, IsThatOfEachDocumentAlone) {
  for (const Attention attention :
       {DocumentAttentionFunction, MaskedAttention}) {
    const at::Tensor packed =
        at::randn({2, kTokens, 3 * kHeads * 4}, at::kDouble)
            .set_requires_grad(true);
    const at::Tensor alone = packed.detach().clone().set_requires_grad(true);
    const at::Tensor y = attention(packed, kHeads, Begins());
    const at::Tensor expected = EachAlone(alone);
    EXPECT_LT(Difference(y, expected), 1e-12);
    const at::Tensor dy = at::randn(y.sizes(), at::kDouble);
    EXPECT_LT(Difference(grad({y}, {packed}, {dy})[0],
                         grad({expected}, {alone}, {dy})[0]),
              1e-12);
  }
}

// Floats go to the fused kernel, and 16 bits through floats.
TEST(DocumentAttentionFunctionTest, EveryDtypeKeepsWithinDocuments) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::Tensor qkv = at::randn({2, kTokens, 3 * kHeads * 4}).to(dtype);
    const at::Tensor before = DocumentAttentionFunction(qkv, kHeads, Begins());
    EXPECT_EQ(before.scalar_type(), dtype);
    EXPECT_LT(
        Difference(before.to(at::kDouble), EachAlone(qkv.to(at::kDouble))),
        dtype == at::kFloat ? 1e-5 : 5e-2);
    qkv.select(1, 1).add_(1);  // seen by the first two documents' own alone
    const at::Tensor after = DocumentAttentionFunction(qkv, kHeads, Begins());
    EXPECT_TRUE(after[0].narrow(0, 2, 7).equal(before[0].narrow(0, 2, 7)));
    EXPECT_FALSE(after[0][1].equal(before[0][1]));
    EXPECT_FALSE(after[1][8].equal(before[1][8]));
  }
}

TEST(DocumentAttentionFunctionTest, GroupsOfHeadsKeepWithinDocuments) {
  const at::Tensor q = at::randn({2, kTokens, 4, 6}, at::kDouble);
  const at::Tensor k = at::randn({2, kTokens, 2, 6}, at::kDouble);
  const at::Tensor v = at::randn({2, kTokens, 2, 6}, at::kDouble);
  const at::Tensor y = GroupedAttentionFunction(q, k, v, Begins());
  const auto alone = [&](int64_t row, int64_t first, int64_t count) {
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(0, row, 1).narrow(1, first, count);
    };
    return GroupedAttentionFunction(part(q), part(k), part(v));
  };
  EXPECT_LT(
      Difference(
          y,
          at::cat({at::cat({alone(0, 0, 2), alone(0, 2, 1), alone(0, 3, 6)}, 1),
                   alone(1, 0, 9)})),
      1e-12);
}

TEST(DocumentAttentionFunctionTest, WholeSamplesAndNoneAreDocuments) {
  const at::Tensor qkv = at::randn({2, kTokens, 3 * kHeads * 4});
  const at::Tensor whole = CausalAttentionFunction(qkv, kHeads);
  EXPECT_TRUE(DocumentAttentionFunction(qkv, kHeads, {}).equal(whole));
  EXPECT_EQ(DocumentAttentionFunction(qkv.narrow(0, 0, 0), kHeads,
                                      Begins().narrow(0, 0, 0))
                .size(0),
            0);
}

TEST(DocumentAttentionFunctionTest, BeginsOfAnotherShapeAreRefused) {
  const at::Tensor qkv = at::randn({2, 5, 3 * kHeads});
  EXPECT_THROW(DocumentAttentionFunction(qkv, kHeads, Begins()), c10::Error);
}

}  // namespace
}  // namespace tandem::document_attention_function_test
