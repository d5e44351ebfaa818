#include "models/functions/causal_attention_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <vector>

namespace tandem {
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
}  // namespace tandem
