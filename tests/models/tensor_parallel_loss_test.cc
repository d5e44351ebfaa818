// The loss of a vocabulary that ranks share against that of one rank's logits:
// values, scores and gradients, for each kind of loss, and refusals.

#include "models/tensor_parallel_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/model/axis/shard.h"
#include "core/testing/axis_ranks.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/functions/cross_entropy/cross_entropy_function.h"
#include "models/functions/cross_entropy/vocab_parallel_cross_entropy_function.h"
#include "tests/models/tensor_parallel_lab.h"

namespace tandem::tensor_parallel_loss_test {
namespace {

constexpr int64_t kClasses = 11;  // no degree divides them
constexpr int64_t kIgnored = 4;

using Options = TensorParallelLossOptions;
using Group = std::shared_ptr<ThreadAxisGroup>;

// The same on every thread; no two of a row are equal.
at::Tensor Logits(at::ScalarType dtype) {
  return ((at::arange(10 * kClasses, at::kDouble) * 37 % 101 - 50) / 16)
      .view({2, 5, kClasses})
      .to(dtype);
}

at::Tensor Targets() { return at::arange(10).view({2, 5}); }

// What a loss gives of some logits, with its gradient and what it adds.
struct Evaluated {
  LossResult result;
  at::Tensor gradient;
  std::optional<at::Tensor> z_loss;
};

Evaluated Evaluate(const LossFunction& loss, at::Tensor logits,
                   const at::Tensor& targets) {
  logits.requires_grad_();
  LossTerms terms;
  Evaluated evaluated;
  {
    const LossTerms::Scope scope(&terms);
    evaluated.result = loss(logits, targets);
  }
  at::Tensor sum = evaluated.result.loss;
  for (const LossTerm& term : terms.terms()) {
    EXPECT_EQ(term.name, "z_loss");
    evaluated.z_loss = term.loss.detach();
    sum = sum + term.loss;
  }
  sum.backward();
  evaluated.gradient = logits.grad();
  return evaluated;
}

at::Tensor PartOf(const at::Tensor& logits, const Group& group) {
  const ShardRange range =
      RangeOfRank(kClasses, group->degree(), group->index());
  return logits.narrow(2, range.begin, range.size);
}

void ExpectNear(const at::Tensor& actual, const at::Tensor& expected,
                double tolerance) {
  EXPECT_LE(
      (actual.to(at::kDouble) - expected.to(at::kDouble)).norm().item<double>(),
      tolerance * expected.to(at::kDouble).norm().item<double>());
}

void ExpectIsTheWholes(const Options& options, const LossFunction& whole,
                       at::ScalarType dtype, double tolerance,
                       const at::Tensor& targets = Targets()) {
  const Evaluated right = Evaluate(whole, Logits(dtype), targets);
  const LossFunction loss = TensorParallelCrossEntropy(options);
  for (const int64_t degree : {1, 2, 3, 4}) {
    SCOPED_TRACE(testing::Message() << dtype << ", degree " << degree);
    ExpectOk(RunAxisRanks(degree, [&](const Group& group) {
      const TensorParallelScope scope(MakeTensorParallel(group, true));
      const Evaluated ours = Evaluate(
          loss, PartOf(Logits(dtype), group).clone().detach(), targets);
      ExpectNear(ours.result.loss.detach(), right.result.loss.detach(),
                 tolerance);
      EXPECT_EQ(ours.z_loss.has_value(), right.z_loss.has_value());
      if (right.z_loss) ExpectNear(*ours.z_loss, *right.z_loss, tolerance);
      const Score& score = ours.result.score;
      const Score& expected = right.result.score;
      EXPECT_EQ(score.correct, expected.correct);
      EXPECT_EQ(score.count, expected.count);
      EXPECT_NEAR(score.loss_sum, expected.loss_sum,
                  tolerance * expected.loss_sum);
      EXPECT_EQ(ours.gradient.scalar_type(), dtype);
      ExpectNear(ours.gradient, PartOf(right.gradient, group), tolerance);
      return absl::OkStatus();
    }));
  }
}

// Gradients of bf16 are rounded to 8 bits, twice where the target is.
double Tolerance(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return 4 * 0x1p-8;
  return dtype == at::kFloat ? 32 * 0x1p-23 : 1e-14;
}

Options Plain() {
  Options options;
  options.classes = kClasses;
  return options;
}

class TensorParallelLoss : public testing::TestWithParam<at::ScalarType> {
 protected:
  static void Expect(const Options& options, const LossFunction& whole,
                     const at::Tensor& targets = Targets()) {
    ExpectIsTheWholes(options, whole, GetParam(), Tolerance(GetParam()),
                      targets);
  }
};

TEST_P(TensorParallelLoss, IsCrossEntropy) { Expect(Plain(), CrossEntropy); }

TEST_P(TensorParallelLoss, LeavesOutIgnoredTargets) {
  Options options = Plain();
  options.ignore_index = kIgnored;
  Expect(options, CrossEntropyIgnoring(kIgnored));
}

TEST_P(TensorParallelLoss, OfIgnoredTargetsAloneIsZero) {
  Options options = Plain();
  options.ignore_index = kIgnored;
  Expect(options, CrossEntropyIgnoring(kIgnored),
         at::full({2, 5}, kIgnored, at::kLong));
}

TEST_P(TensorParallelLoss, SmoothsLabels) {
  Options options = Plain();
  options.label_smoothing = 0.1;
  Expect(options, SmoothedCrossEntropy(0.1));
  options.ignore_index = kIgnored;
  Expect(options, SmoothedCrossEntropy(0.1, kIgnored));
}

TEST_P(TensorParallelLoss, AddsAZLoss) {
  Options options = Plain();
  options.z_loss = 0.01;
  Expect(options, WithZLoss(CrossEntropy, 0.01));
}

TEST_P(TensorParallelLoss, IsEvaluatedWithoutWhatIsForTrainingAlone) {
  Options options = Plain();
  options.label_smoothing = 0.1;
  options.z_loss = 0.01;
  const LossFunction loss = TensorParallelCrossEntropy(options).evaluation();
  ExpectOk(RunAxisRanks(2, [&](const Group& group) {
    const TensorParallelScope scope(MakeTensorParallel(group, true));
    const at::Tensor logits = Logits(GetParam());
    LossTerms terms;
    const LossTerms::Scope adds(&terms);
    ExpectNear(loss(PartOf(logits, group), Targets()).loss,
               CrossEntropy(logits, Targets()).loss, Tolerance(GetParam()));
    EXPECT_TRUE(terms.terms().empty());
    return absl::OkStatus();
  }));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, TensorParallelLoss,
                         testing::Values(at::kFloat, at::kBFloat16,
                                         at::kDouble));

// Equal logits on two ranks: the first is the greatest.
TEST(TensorParallelLossTest, OfEqualLogitsTheFirstIsTheGreatest) {
  ExpectOk(RunAxisRanks(3, [](const Group& group) {
    const TensorParallelScope scope(MakeTensorParallel(group, false));
    const at::Tensor logits = at::zeros({2, 5, kClasses});
    const LossResult result = TensorParallelCrossEntropy(Plain())(
        PartOf(logits, group), at::arange(10).view({2, 5}));
    EXPECT_EQ(result.score.correct, 1);
    return absl::OkStatus();
  }));
}

// Some ranks' logits are so small that nothing is left of them, and some so
// great that their exponentials are infinite.
TEST(TensorParallelLossTest, GreatLogitsOfOneRankAloneDoNoHarm) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    const TensorParallelScope scope(MakeTensorParallel(group, false));
    at::Tensor logits = at::zeros({2, 5, kClasses});
    logits.narrow(2, 8, 1).fill_(1000);
    const at::Tensor mine = PartOf(logits, group).clone().requires_grad_();
    const LossResult result = TensorParallelCrossEntropy(Plain())(
        mine, at::full({2, 5}, 8, at::kLong));
    EXPECT_EQ(result.loss.item<float>(), 0);
    result.loss.backward();
    EXPECT_EQ(mine.grad().abs().max().item<float>(), 0);
    return absl::OkStatus();
  }));
}

TEST(VocabPartOfLogitsTest, IsDifferentiableTwice) {
  const at::Tensor whole = Logits(at::kDouble).requires_grad_();
  const auto second = [](const at::Tensor& loss, const at::Tensor& logits) {
    const auto first = torch::autograd::grad(
        {loss}, {logits}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    return torch::autograd::grad({first[0].pow(3).sum()}, {logits})[0];
  };
  const at::Tensor right = second(CrossEntropy(whole, Targets()).loss, whole);
  const at::Tensor logits = Logits(at::kDouble).requires_grad_();
  const at::Tensor rows = logits.view({10, kClasses});
  const at::Tensor labels = Targets().flatten();
  const at::Tensor numbers =
      JoinVocabParts(VocabPartOfLogits(rows.narrow(1, 0, 4), labels, 0),
                     VocabPartOfLogits(rows.narrow(1, 4, 7), labels, 4));
  ExpectNear(second(CrossEntropyOfVocabParts(numbers, labels, {}).losses.mean(),
                    logits),
             right, 1e-12);
}

std::string Refusal(const std::function<void(const Group&)>& work) {
  return std::string(RunAxisRanks(2, [&](const Group& group) {
                       const TensorParallelScope scope(
                           MakeTensorParallel(group, true));
                       work(group);
                       return absl::OkStatus();
                     }).message());
}

using testing::HasSubstr;

TEST(TensorParallelLossTest, RefusesWhatDoesNotFit) {
  const LossFunction loss = TensorParallelCrossEntropy(Plain());
  EXPECT_THAT(Refusal([&](const Group&) {
                loss(at::randn({2, 5, 4}), Targets());
              }),
              HasSubstr("a loss of 11 classes, of which"));
  EXPECT_THAT(Refusal([&](const Group& group) {
                loss(PartOf(Logits(at::kFloat), group).narrow(1, 0, 3),
                     Targets());
              }),
              HasSubstr("the logits need the targets' shape"));
  for (const int64_t target : {int64_t{-1}, kClasses}) {
    EXPECT_THAT(Refusal([&](const Group& group) {
                  loss(PartOf(Logits(at::kFloat), group),
                       at::full({2, 5}, target, at::kLong));
                }),
                HasSubstr("is out of bounds"));
  }
}

TEST(TensorParallelLossTest, TakesNoRows) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    const TensorParallelScope scope(MakeTensorParallel(group, true));
    const at::Tensor logits =
        PartOf(Logits(at::kFloat), group).narrow(0, 0, 0).clone();
    const LossResult result = TensorParallelCrossEntropy(Plain())(
        logits.requires_grad_(), Targets().narrow(0, 0, 0));
    EXPECT_TRUE(std::isnan(result.loss.item<float>()));
    EXPECT_EQ(result.score.count, 0);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::tensor_parallel_loss_test
