#include "models/functions/causal_attention_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <utility>
#include <vector>

namespace tandem::causal_attention_function_test {
namespace {

using torch::autograd::grad;

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
    const at::Tensor its = mine.detach().clone().set_requires_grad(true);
    const at::Tensor y = CausalAttentionFunction(mine, kHeads);
    const at::Tensor expected = ByLibTorch(its);
    EXPECT_TRUE(at::allclose(y, expected, 1e-4, 1e-5));
    const at::Tensor dy = at::randn(y.sizes(), dtype);
    EXPECT_TRUE(at::allclose(grad({y}, {mine}, {dy})[0],
                             grad({expected}, {its}, {dy})[0], 1e-4, 1e-5));
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

}  // namespace
}  // namespace tandem::causal_attention_function_test
