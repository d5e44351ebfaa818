
#include <ATen/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/loss/loss_terms.h"
#include "models/classification_loss.h"

namespace tandem::z_loss_test {
namespace {

TEST(ZLossTest, IsAddedBesideTheLossInClosedForm) {
  // Sums of exp: 2 e, and 1 + 3.
  const at::Tensor logits =
      at::tensor({1.0, 1.0, 0.0, std::log(3.0)}).view({2, 2}).requires_grad_();
  const at::Tensor targets = at::tensor({0, 1}, at::kLong);
  const LossFunction loss = WithZLoss(CrossEntropy, 0.5);
  LossTerms terms;
  LossResult result;
  {
    const LossTerms::Scope scope(&terms);
    result = loss(logits, targets);
  }
  EXPECT_TRUE(result.loss.equal(CrossEntropy(logits, targets).loss));
  ASSERT_EQ(terms.terms().size(), 1u);
  EXPECT_EQ(terms.terms()[0].name, "z_loss");
  const at::Tensor term = terms.terms()[0].loss;
  const double first = std::log(2 * std::exp(1.0));
  const double second = std::log(4.0);
  EXPECT_NEAR(term.item<double>(), 0.5 * (first * first + second * second) / 2,
              1e-6);
  // d/dx of c log(Z)^2 / 2 is c log(Z) softmax(x).
  term.backward();
  EXPECT_NEAR(logits.grad()[0][0].item<double>(), 0.5 * first * 0.5, 1e-6);
  EXPECT_NEAR(logits.grad()[1][1].item<double>(), 0.5 * second * 0.75, 1e-6);
}

// It is an auxiliary loss, which parts of a batch weigh by their samples.
TEST(ZLossTest, IsAMeanOverIgnoredTargetsToo) {
  const at::Tensor logits =
      at::tensor({1.0, 1.0, 0.0, std::log(3.0)}).view({2, 2});
  const LossFunction loss = WithZLoss(CrossEntropyIgnoring(-1), 1);
  LossTerms terms;
  const LossTerms::Scope scope(&terms);
  loss(logits, at::tensor({0, -1}, at::kLong));
  const double first = std::log(2 * std::exp(1.0));
  const double second = std::log(4.0);
  EXPECT_NEAR(terms.terms()[0].loss.item<double>(),
              (first * first + second * second) / 2, 1e-6);
}

TEST(ZLossTest, IsComputedInFloats) {
  const at::Tensor logits = at::tensor({1.0, 1.0, 0.0, 3.0})
                                .view({2, 2})
                                .to(at::kBFloat16)
                                .requires_grad_();
  const LossFunction plain = LossFunction::OfAnyPrecision(CrossEntropy);
  LossTerms terms;
  const LossTerms::Scope scope(&terms);
  const LossResult result =
      WithZLoss(plain, 1)(logits, at::tensor({0, 1}, at::kLong));
  const at::Tensor z = terms.terms()[0].loss;
  EXPECT_EQ(z.scalar_type(), at::kFloat);
  EXPECT_EQ(result.loss.scalar_type(), at::kFloat);
  const double first = 1 + std::log(2.0);
  const double second = std::log(1 + std::exp(3.0));
  EXPECT_NEAR(z.item<double>(), (first * first + second * second) / 2, 1e-5);
  z.backward();
  EXPECT_EQ(logits.grad().scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace tandem::z_loss_test
