#include "models/classification_loss.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "tests/models/rounding.h"

namespace tandem::classification_loss_test {
namespace {

at::Tensor RandomLogits(at::IntArrayRef shape) {
  return at::empty(shape).normal_(0, 3, at::detail::createCPUGenerator(5));
}

TEST(CrossEntropyTest, IsPytorchsLossAndGradientWithinRounding) {
  const at::Tensor targets = at::arange(37, at::kLong) % 7;
  const at::Tensor ours = RandomLogits({37, 7}).requires_grad_();
  const at::Tensor theirs = RandomLogits({37, 7}).requires_grad_();
  const LossResult result = CrossEntropy(ours, targets);
  const at::Tensor expected = at::cross_entropy_loss(theirs, targets);
  EXPECT_TRUE(IsWithinRoundings(result.loss, expected, 64));
  result.loss.backward();
  expected.backward();
  EXPECT_TRUE(IsWithinRoundings(ours.grad(), theirs.grad(), 64));
}

TEST(CrossEntropyTest, ScoresInClosedForm) {
  // Two sure and right, one sure and wrong, one without an opinion.
  const at::Tensor logits =
      at::tensor({100., 0., 0., 100., 100., 0., 0., 0.}).view({4, 2});
  const Score score =
      CrossEntropy(logits.to(at::kFloat), at::tensor({0, 1, 1, 1}, at::kLong))
          .score;
  EXPECT_NEAR(score.loss_sum, 100 + std::log(2.0), 1e-6);
  EXPECT_EQ(score.correct, 2);
  EXPECT_EQ(score.count, 4);
}

TEST(CrossEntropyTest, OfEqualLogitsTheFirstIsTheGuess) {
  const at::Tensor logits = at::zeros({3, 5});
  EXPECT_EQ(
      CrossEntropy(logits, at::tensor({0, 1, 4}, at::kLong)).score.correct, 1);
}

TEST(CrossEntropyTest, LossIsTheMeanOfWhatTheScoreSums) {
  const LossResult result =
      CrossEntropy(RandomLogits({101, 10}), at::arange(101, at::kLong) % 10);
  EXPECT_NEAR(result.loss.item<double>(), result.score.loss(), 1e-6);
}

TEST(CrossEntropyTest, EveryTokenIsAPrediction) {
  const at::Tensor logits = RandomLogits({3, 5, 11});
  const at::Tensor targets = (at::arange(15, at::kLong) % 11).view({3, 5});
  const LossResult tokens = CrossEntropy(logits, targets);
  const LossResult rows =
      CrossEntropy(logits.view({15, 11}), targets.view({15}));
  EXPECT_TRUE(tokens.loss.equal(rows.loss));
  EXPECT_EQ(tokens.score.loss_sum, rows.score.loss_sum);
  EXPECT_EQ(tokens.score.correct, rows.score.correct);
  EXPECT_EQ(tokens.score.count, 15);
}

// Follows torch.autocast: a loss in fp16 has three digits, and cannot be scaled
// by more than 65504.
TEST(CrossEntropyTest, LossesOfSixteenBitsAreComputedInFloats) {
  const at::Tensor targets = at::arange(37, at::kLong) % 7;
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor narrow =
        RandomLogits({37, 7}).to(dtype).detach().requires_grad_();
    const at::Tensor wide = narrow.detach().to(at::kFloat).requires_grad_();
    for (const bool ignores : {false, true}) {
      const auto loss_of = [&](const at::Tensor& logits) {
        return ignores ? CrossEntropyIgnoring(3)(logits, targets)
                       : CrossEntropy(logits, targets);
      };
      const LossResult result = loss_of(narrow);
      const LossResult expected = loss_of(wide);
      EXPECT_EQ(result.loss.scalar_type(), at::kFloat);
      EXPECT_TRUE(IsWithinRoundings(result.loss, expected.loss, 64));
      EXPECT_NEAR(result.score.loss_sum, expected.score.loss_sum, 1e-4);
      (result.loss * 128).backward();
      (expected.loss * 128).backward();
      EXPECT_TRUE(at::allclose(narrow.grad().to(at::kFloat), wide.grad(),
                               /*rtol=*/1e-2, /*atol=*/1e-3));
    }
  }
}

TEST(CrossEntropyTest, AnEmptyBatchScoresNothing) {
  const LossResult result =
      CrossEntropy(at::zeros({0, 10}), at::zeros({0}, at::kLong));
  EXPECT_TRUE(std::isnan(result.loss.item<double>()));
  EXPECT_EQ(result.score.loss_sum, 0);
  EXPECT_EQ(result.score.count, 0);
}

TEST(CrossEntropyTest, RefusesShapesThatDoNotFit) {
  const auto targets = [](at::IntArrayRef shape) {
    return at::zeros(shape, at::kLong);
  };
  EXPECT_THROW(CrossEntropy(at::zeros({3, 5}), targets({4})), c10::Error);
  EXPECT_THROW(CrossEntropy(at::zeros({3, 5}), targets({3, 5})), c10::Error);
  EXPECT_THROW(CrossEntropy(at::zeros({5}), targets({})), c10::Error);
  EXPECT_THROW(CrossEntropy(at::zeros({2, 3, 5}), targets({2, 4})), c10::Error);
}

// Whichever kernels compute it.
TEST(CrossEntropyTest, RefusesATargetThatIsNoClass) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kDouble}) {
    for (const int64_t target : {5, -1, -100}) {
      EXPECT_THROW(CrossEntropy(at::zeros({1, 5}, dtype),
                                at::full({1}, target, at::kLong)),
                   c10::Error)
          << dtype << " " << target;
    }
  }
}

TEST(CrossEntropyIgnoringTest, IsPytorchsLossAndGradientWithinRounding) {
  const at::Tensor targets = at::arange(38, at::kLong) % 7;
  targets.view({19, 2}).select(1, 0).narrow(0, 3, 9).fill_(-100);
  const at::Tensor ours = RandomLogits({38, 7}).requires_grad_();
  const at::Tensor theirs = RandomLogits({38, 7}).requires_grad_();
  const LossFunction loss = CrossEntropyIgnoring(-100);
  const LossResult result = loss(ours, targets);
  const at::Tensor expected = at::cross_entropy_loss(theirs, targets);
  EXPECT_TRUE(IsWithinRoundings(result.loss, expected, 64));
  result.loss.backward();
  expected.backward();
  EXPECT_TRUE(IsWithinRoundings(ours.grad(), theirs.grad(), 64));
  EXPECT_EQ(result.score.count, 29);
  EXPECT_EQ(loss.weight()(targets), 29);
  EXPECT_NEAR(result.loss.item<double>(), result.score.loss(), 1e-6);
}

TEST(CrossEntropyIgnoringTest, WithoutIgnoredTargetsItIsCrossEntropy) {
  const at::Tensor logits = RandomLogits({3, 5, 11});
  const at::Tensor targets = (at::arange(15, at::kLong) % 11).view({3, 5});
  const LossResult expected = CrossEntropy(logits, targets);
  const LossResult result = CrossEntropyIgnoring(-100)(logits, targets);
  EXPECT_TRUE(result.loss.equal(expected.loss));
  EXPECT_EQ(result.score.loss_sum, expected.score.loss_sum);
  EXPECT_EQ(result.score.correct, expected.score.correct);
  EXPECT_EQ(result.score.count, expected.score.count);
}

// A class may be the one that is ignored; its guesses are not counted.
TEST(CrossEntropyIgnoringTest, IgnoredTargetsScoreNothing) {
  const at::Tensor logits =
      at::tensor({100., 0., 0., 100., 100., 0.}).view({3, 2}).to(at::kFloat);
  const Score score =
      CrossEntropyIgnoring(0)(logits, at::tensor({0, 1, 1}, at::kLong)).score;
  EXPECT_EQ(score.count, 2);
  EXPECT_EQ(score.correct, 1);
  EXPECT_NEAR(score.loss_sum, 100, 1e-6);
}

TEST(CrossEntropyIgnoringTest, NothingLeftIsZero) {
  const at::Tensor logits = RandomLogits({4, 3}).requires_grad_();
  const LossFunction loss = CrossEntropyIgnoring(-1);
  const at::Tensor targets = at::zeros({4}, at::kLong).sub(1);
  const LossResult result = loss(logits, targets);
  EXPECT_EQ(result.loss.item<double>(), 0);
  result.loss.backward();
  EXPECT_TRUE(logits.grad().eq(0).all().item<bool>());
  EXPECT_EQ(result.score.loss_sum, 0);
  EXPECT_EQ(result.score.count, 0);
  EXPECT_EQ(loss.weight()(targets), 0);
}

TEST(SmoothedCrossEntropyTest, IsPytorchsLossAndGradientWithinRounding) {
  const at::Tensor targets = at::arange(38, at::kLong) % 7;
  targets.view({19, 2}).select(1, 0).narrow(0, 3, 9).fill_(-100);
  for (const double smoothing : {0.1, 0.6, 1.0}) {
    for (const bool ignores : {false, true}) {
      const at::Tensor labels = ignores ? targets : targets.clamp_min(0);
      const at::Tensor ours =
          RandomLogits({38, 7}).to(at::kDouble).requires_grad_();
      const at::Tensor theirs =
          RandomLogits({38, 7}).to(at::kDouble).requires_grad_();
      const LossFunction loss = ignores ? SmoothedCrossEntropy(smoothing, -100)
                                        : SmoothedCrossEntropy(smoothing);
      const LossResult result = loss(ours, labels);
      const at::Tensor expected = at::cross_entropy_loss(
          theirs, labels, /*weight=*/{}, at::Reduction::Mean,
          /*ignore_index=*/-100, smoothing);
      EXPECT_TRUE(at::allclose(result.loss, expected, 1e-12, 1e-12));
      result.loss.backward();
      expected.backward();
      EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad(), 1e-12, 1e-12));
      EXPECT_EQ(result.score.count, ignores ? 29 : 38);
      EXPECT_NEAR(result.loss.item<double>(), result.score.loss(), 1e-6);
      EXPECT_EQ(loss.weight() != nullptr, ignores);
    }
  }
}

TEST(SmoothedCrossEntropyTest, IsItInClosedForm) {
  // One of four classes is sure, and right: log(Z) is 100, as is its logit.
  const at::Tensor logits = at::tensor({100.f, 0.f, 0.f, 0.f}).view({1, 4});
  const at::Tensor target = at::tensor({0}, at::kLong);
  const LossFunction loss = SmoothedCrossEntropy(0.2);
  EXPECT_NEAR(loss(logits, target).loss.item<double>(), 0.2 * (100 - 25), 1e-4);
  EXPECT_EQ(loss(logits, target).score.correct, 1);
}

TEST(SmoothedCrossEntropyTest, EvaluatesThePlainLoss) {
  const at::Tensor logits = RandomLogits({3, 5, 11});
  const at::Tensor targets = (at::arange(15, at::kLong) % 11).view({3, 5});
  for (const bool has_z_loss : {false, true}) {
    LossFunction loss = SmoothedCrossEntropy(0.1);
    if (has_z_loss) loss = WithZLoss(loss, 0.5);
    const double plain = CrossEntropy(logits, targets).score.loss_sum;
    EXPECT_EQ(loss.evaluation()(logits, targets).score.loss_sum, plain);
    EXPECT_NE(loss(logits, targets).score.loss_sum, plain);
  }
}

TEST(SmoothedCrossEntropyTest, OfNothingIsThePlainLossOfAnyPrecision) {
  const at::Tensor logits = RandomLogits({37, 7}).to(at::kBFloat16);
  const at::Tensor targets = at::arange(37, at::kLong) % 7;
  const LossFunction loss = SmoothedCrossEntropy(0);
  EXPECT_EQ(&loss.evaluation(), &loss);
  EXPECT_TRUE(loss(logits, targets)
                  .loss.equal(LossFunction::OfAnyPrecision(CrossEntropy)(
                                  logits, targets)
                                  .loss));
}

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
}  // namespace tandem::classification_loss_test
