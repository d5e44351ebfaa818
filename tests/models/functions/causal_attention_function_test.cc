#include "models/functions/causal_attention_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/models/rounding.h"

namespace tandem::causal_attention_function_test {
namespace {

using torch::autograd::grad;

// Two samples of three tokens; two heads of queries, keys and values, of width
// 2 each: element [sample, token, (part, head, i)].
TEST(AttentionHeadsTest, HeadsLieSideBySideWithinEachPart) {
  const at::Tensor qkv = at::arange(2 * 3 * 12).view({2, 3, 12});
  const std::vector<at::Tensor> parts = SplitHeads(qkv, 2);
  ASSERT_EQ(parts.size(), 3u);
  for (int64_t part = 0; part < 3; ++part) {
    const at::Tensor& heads = parts[static_cast<size_t>(part)];
    ASSERT_EQ(heads.sizes(), at::IntArrayRef({2, 2, 3, 2}));
    for (int64_t head = 0; head < 2; ++head) {
      const int64_t first = 4 * part + 2 * head;
      EXPECT_TRUE(heads.select(1, head).equal(qkv.narrow(2, first, 2)));
    }
  }
}

TEST(AttentionHeadsTest, JoiningUndoesIt) {
  const at::Tensor qkv = at::randn({2, 5, 18});
  const std::vector<at::Tensor> parts = SplitHeads(qkv, 3);
  EXPECT_TRUE(JoinHeads(parts[1]).equal(qkv.narrow(2, 6, 6)));
}

constexpr int64_t kHeads = 3;

at::Tensor ByLibTorch(const at::Tensor& qkv) {
  std::vector<at::Tensor> parts = qkv.chunk(3, -1);
  for (at::Tensor& part : parts) {
    part = part.unflatten(2, {kHeads, part.size(2) / kHeads}).transpose(1, 2);
  }
  return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0,
                                          /*is_causal=*/true)
      .transpose(1, 2)
      .flatten(2);
}

// Floats go to the fused kernel, doubles do not.
TEST(CausalAttentionFunctionTest, IsLibTorchs) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor mine =
        at::randn({2, 70, 3 * kHeads * 4}, dtype).set_requires_grad(true);
    const at::Tensor copy = mine.detach().clone().set_requires_grad(true);
    const at::Tensor y = CausalAttentionFunction(mine, kHeads);
    const at::Tensor expected = ByLibTorch(copy);
    EXPECT_TRUE(at::allclose(y, expected, 1e-4, 1e-5));
    const at::Tensor dy = at::randn(y.sizes(), dtype);
    EXPECT_TRUE(at::allclose(grad({y}, {mine}, {dy})[0],
                             grad({expected}, {copy}, {dy})[0], 1e-4, 1e-5));
  }
}

// Computed in floats, on any processor, and rounded at the end (bf16 keeps 8
// bits, fp16 11): gradients also within, for queries' and keys' go through
// rounded probabilities where there are instructions for bf16.
TEST(CausalAttentionFunctionTest, Of16BitsIsThatOfDoubles) {
  for (const auto& [dtype, bits] :
       {std::pair(at::kBFloat16, 8), std::pair(at::kHalf, 11)}) {
    const at::Tensor narrow =
        at::randn({2, 70, 3 * kHeads * 4}).to(dtype).set_requires_grad(true);
    const at::Tensor wide =
        narrow.detach().to(at::kDouble).set_requires_grad(true);
    const at::Tensor y = CausalAttentionFunction(narrow, kHeads);
    EXPECT_EQ(y.scalar_type(), dtype);
    const at::Tensor expected = ByLibTorch(wide);
    const double rounding = std::ldexp(1, -bits);
    EXPECT_TRUE(
        at::allclose(y.to(at::kDouble), expected, 2 * rounding, 4 * rounding));
    const at::Tensor dy = at::randn(y.sizes()).to(dtype);
    const at::Tensor gradient = grad({y}, {narrow}, {dy})[0];
    EXPECT_EQ(gradient.scalar_type(), dtype);
    EXPECT_TRUE(at::allclose(gradient.to(at::kDouble),
                             grad({expected}, {wide}, {dy.to(at::kDouble)})[0],
                             4 * rounding, 16 * rounding));
  }
}

TEST(CausalAttentionFunctionTest, IsDifferentiableTwice) {
  const at::Tensor wide =
      at::randn({2, 5, 3 * kHeads * 2}, at::kDouble).set_requires_grad(true);
  const auto second = [](const at::Tensor& x) {
    const at::Tensor y = CausalAttentionFunction(x, kHeads);
    const at::Tensor first = grad({y.square().sum()}, {x}, {},
                                  /*retain_graph=*/true,
                                  /*create_graph=*/true)[0];
    return grad({first.square().sum()}, {x})[0];
  };
  const at::Tensor narrow =
      wide.detach().to(at::kFloat).set_requires_grad(true);
  const at::Tensor found = second(narrow);
  ASSERT_TRUE(found.defined());
  // Doubles by central differences of the first gradient's squares.
  const auto sum = [](const at::Tensor& x) {
    const at::Tensor leaf = x.detach().set_requires_grad(true);
    const at::Tensor y = CausalAttentionFunction(leaf, kHeads);
    return grad({y.square().sum()}, {leaf})[0].square().sum().item<double>();
  };
  const at::Tensor direction = at::randn(wide.sizes(), at::kDouble);
  constexpr double kStep = 1e-5;
  const double difference =
      (sum(wide + kStep * direction) - sum(wide - kStep * direction)) /
      (2 * kStep);
  const double slope = (found.to(at::kDouble) * direction).sum().item<double>();
  EXPECT_NEAR(slope, difference, 1e-3 * (1 + std::abs(difference)));
}

TEST(CausalAttentionFunctionTest, RecordsNothingWithoutGradients) {
  const at::Tensor qkv = at::randn({1, 4, 3 * kHeads}).set_requires_grad(true);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(CausalAttentionFunction(qkv, kHeads).requires_grad());
}

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
    EXPECT_LT(LargestDifference(y, expected), 1e-12);
    const at::Tensor dy = at::randn(y.sizes(), at::kDouble);
    EXPECT_LT(LargestDifference(grad({y}, {packed}, {dy})[0],
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
    EXPECT_LT(LargestDifference(before.to(at::kDouble),
                                EachAlone(qkv.to(at::kDouble))),
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
      LargestDifference(
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
}  // namespace tandem::causal_attention_function_test
