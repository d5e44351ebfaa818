#include "core/fused/causal_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>

namespace tandem::causal_attention_test {
namespace {

struct Shape {
  int64_t batch, tokens, heads, size;
};

// The definition, in double, of what the operands are.
at::Tensor Expected(const at::Tensor& qkv, const Shape& shape) {
  std::vector<at::Tensor> parts = qkv.chunk(3, -1);
  for (at::Tensor& part : parts) {
    part = part.unflatten(2, {shape.heads, shape.size}).transpose(1, 2);
  }
  const at::Tensor unseen =
      at::ones({shape.tokens, shape.tokens}, at::kBool).triu(1);
  const at::Tensor scores =
      (at::matmul(parts[0], parts[1].transpose(2, 3)) /
       std::sqrt(static_cast<double>(shape.size)))
          .masked_fill(unseen, -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), parts[2])
      .transpose(1, 2)
      .flatten(2);
}

class CausalAttentionTest
    : public ::testing::TestWithParam<std::tuple<at::ScalarType, Shape>> {
 protected:
  void SetUp() override {
    if (!HasCausalAttention(dtype_)) {
      GTEST_SKIP() << "no products of " << dtype_ << " on this processor";
    }
  }
  at::Tensor Draw(int64_t parts) const {
    return at::randn({shape_.batch, shape_.tokens,
                      parts * shape_.heads * shape_.size})
        .to(dtype_);
  }
  // The tolerance of values around 1, which are rounded a few times on the way:
  // to float over sums of as many terms as there are tokens, to bf16 twice.
  double tolerance() const { return dtype_ == at::kFloat ? 1e-5 : 4.0 / 256; }
  void ExpectNear(const at::Tensor& found, const at::Tensor& expected) const {
    ASSERT_EQ(found.sizes(), expected.sizes());
    EXPECT_EQ(found.scalar_type(), dtype_);
    if (found.numel() == 0) return;
    const double greatest = expected.abs().max().item<double>();
    EXPECT_LE((found.to(at::kDouble) - expected).abs().max().item<double>(),
              tolerance() * std::max(1.0, greatest));
  }

  const at::ScalarType dtype_ = std::get<0>(GetParam());
  const Shape shape_ = std::get<1>(GetParam());
};

TEST_P(CausalAttentionTest, IsTheDefinition) {
  const at::Tensor qkv = Draw(3);
  const auto [y, log_sums] = CausalAttention(qkv, shape_.heads);
  ExpectNear(y, Expected(qkv.to(at::kDouble), shape_));
  EXPECT_EQ(log_sums.sizes(),
            at::IntArrayRef({shape_.batch, shape_.heads, shape_.tokens}));
}

TEST_P(CausalAttentionTest, BackwardIsItsDerivative) {
  const at::Tensor qkv = Draw(3);
  const at::Tensor dy = Draw(1);
  const auto [y, log_sums] = CausalAttention(qkv, shape_.heads);
  const at::Tensor found =
      CausalAttentionBackward(dy, qkv, y, log_sums, shape_.heads);
  const at::Tensor wide = qkv.to(at::kDouble).set_requires_grad(true);
  const at::Tensor expected = torch::autograd::grad(
      {Expected(wide, shape_)}, {wide}, {dy.to(at::kDouble)})[0];
  ExpectNear(found, expected);
}

TEST_P(CausalAttentionTest, HasTheSameBitsOnAnyNumberOfThreads) {
  const at::Tensor qkv = Draw(3);
  const at::Tensor dy = Draw(1);
  at::Tensor first, first_gradient;
  for (const int threads : {1, 2, 3, 7}) {
    at::set_num_threads(threads);
    const auto [y, log_sums] = CausalAttention(qkv, shape_.heads);
    const at::Tensor gradient =
        CausalAttentionBackward(dy, qkv, y, log_sums, shape_.heads);
    if (!first.defined()) {
      first = y;
      first_gradient = gradient;
    }
    EXPECT_TRUE(y.equal(first));
    EXPECT_TRUE(gradient.equal(first_gradient));
  }
  at::set_num_threads(1);
}

// A token's result does not depend on what comes after it.
TEST_P(CausalAttentionTest, NothingComesFromLaterTokens) {
  if (shape_.tokens < 2) GTEST_SKIP() << "there are none";
  const at::Tensor qkv = Draw(3);
  const at::Tensor other = qkv.clone();
  other.select(1, shape_.tokens - 1).fill_(3);
  const auto seen = [&](const at::Tensor& x) {
    return std::get<0>(CausalAttention(x, shape_.heads))
        .narrow(1, 0, shape_.tokens - 1);
  };
  EXPECT_TRUE(seen(qkv).equal(seen(other)));
}

std::string NameOf(
    const ::testing::TestParamInfo<CausalAttentionTest::ParamType>& info) {
  const auto& [dtype, shape] = info.param;
  return std::string(at::toString(dtype)) + "_" + std::to_string(shape.batch) +
         "_" + std::to_string(shape.tokens) + "_" +
         std::to_string(shape.heads) + "_" + std::to_string(shape.size);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CausalAttentionTest,
    ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                       ::testing::Values(Shape{1, 1, 1, 1}, Shape{2, 2, 3, 5},
                                         Shape{0, 4, 2, 3}, Shape{2, 0, 2, 3},
                                         Shape{1, 63, 2, 8}, Shape{3, 64, 1, 7},
                                         Shape{1, 65, 2, 16},
                                         Shape{2, 131, 3, 32})),
    NameOf);

TEST(CausalAttentionErrorsTest, ShapesThatDoNotFitAreNamed) {
  for (const at::Tensor& qkv :
       {at::randn({4, 6}), at::randn({1, 4, 8}), at::randn({1, 4, 0})}) {
    EXPECT_THROW(CausalAttention(qkv, 2), c10::Error);
  }
  EXPECT_THROW(CausalAttention(at::randn({1, 4, 6}), 0), c10::Error);
  EXPECT_THROW(CausalAttention(at::randn({1, 4, 6}, at::kDouble), 2),
               c10::Error);
  const at::Tensor qkv = at::randn({1, 4, 6});
  const auto [y, log_sums] = CausalAttention(qkv, 2);
  EXPECT_THROW(
      CausalAttentionBackward(at::randn({1, 4, 3}), qkv, y, log_sums, 2),
      c10::Error);
}

}  // namespace
}  // namespace tandem::causal_attention_test
