#include "core/loss/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "core/loss/loss_terms.h"
#include "core/testing/device_types.h"

namespace tandem::loss_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

LossResult Mean(const at::Tensor& outputs, const at::Tensor&) {
  return {outputs.mean(), {outputs.sum().item<double>(), 0, outputs.numel()}};
}

TEST(LossFunctionTest, IsMadeOfWhatCanBeCalled) {
  const LossFunction none;
  EXPECT_FALSE(none);
  const LossFunction loss = Mean;
  ASSERT_TRUE(loss);
  EXPECT_FALSE(loss.weight());
  EXPECT_EQ(loss(at::ones({3}), {}).score.count, 3);
  const LossFunction weighed(
      Mean, [](const at::Tensor& targets) { return targets.numel() + 0.5; });
  EXPECT_EQ(weighed.weight()(at::ones({2})), 2.5);
}

TEST(LossFunctionTest, EvaluatesItselfUnlessAnotherIsSaid) {
  const LossFunction plain = Mean;
  EXPECT_EQ(&plain.evaluation(), &plain);
  const LossFunction doubled = LossFunction::EvaluatedBy(
      [](const at::Tensor& outputs, const at::Tensor& targets) {
        return Mean(outputs * 2, targets);
      },
      plain);
  EXPECT_EQ(doubled(at::ones({3}), {}).score.loss_sum, 6);
  EXPECT_EQ(doubled.evaluation()(at::ones({3}), {}).score.loss_sum, 3);
  EXPECT_EQ(&doubled.evaluation().evaluation(), &doubled.evaluation());
}

TEST(LossFunctionTest, AScoreWithoutPredictionsHasNoSum) {
  const LossFunction loss = [](const at::Tensor& outputs, const at::Tensor&) {
    return LossResult{outputs.mean(), {kNan, 0, 0}};
  };
  EXPECT_EQ(loss(at::ones({3}), {}).score.loss_sum, 0);
}

TEST(LossFunctionTest, TakesOutputsAndTargetsByName) {
  const LossFunction loss(
      {{"head"}, {"kinds"}},
      [](const LossArguments& arguments) {
        return LossResult{arguments.outputs.sum() +
                              arguments.further_outputs.at("head").sum() +
                              arguments.further_targets.at("kinds").sum(),
                          {}};
      },
      [](const LossTargets& targets) {
        return targets.further.at("kinds").sum().item<double>();
      });
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss.names().outputs, std::vector<std::string>{"head"});
  EXPECT_EQ(loss.names().targets, std::vector<std::string>{"kinds"});
  const LossTargets targets({}, {{"kinds", at::ones({4})}});
  EXPECT_EQ(loss.weight()(targets), 4);
  const LossArguments arguments =
      MakeLossArguments(at::ones({2}), {{"head", at::ones({3})}}, targets);
  EXPECT_FALSE(arguments.targets.defined());
  EXPECT_EQ(loss(arguments).loss.item<double>(), 9);
  EXPECT_THROW(MakeLossArguments(at::ones({2}), {}, {}), c10::Error);
}

TEST(LossFunctionTest, ACountIsWaitedForOnlyWhereItIsNeeded) {
  const auto later = [](const at::Tensor& outputs, const at::Tensor&) {
    LossResult result = {outputs.mean(), {}};
    result.sums = at::tensor({1.5, 2., 3.}, at::kDouble);
    return result;
  };
  const LossResult at_once = LossFunction(later)(at::ones({3}), {});
  EXPECT_FALSE(at_once.sums.defined());
  EXPECT_EQ(at_once.score.count, 3);
  EXPECT_EQ(at_once.score.loss_sum, 1.5);
  const LossFunction weighed(later, [](const at::Tensor&) { return 1.0; });
  const LossResult deferred = weighed(at::ones({3}), {});
  EXPECT_TRUE(deferred.sums.defined());
  EXPECT_EQ(deferred.score.count, 0);
}

TEST(LossFunctionTest, SumsOfAnotherFormAreRefused) {
  const LossFunction loss = [](const at::Tensor& outputs, const at::Tensor&) {
    LossResult result = {outputs.mean(), {}};
    result.sums = at::ones({2});
    return result;
  };
  EXPECT_THROW(loss(at::ones({3}), {}), c10::Error);
}

TEST(WeighLossTest, OneIsTheLossItself) {
  const at::Tensor loss = at::ones({});
  EXPECT_TRUE(WeighLoss(loss, 1, at::ones({2})).is_same(loss));
  EXPECT_EQ(WeighLoss(loss, 0.25, at::ones({2})).item<double>(), 0.25);
}

TEST(WeighLossTest, NothingWeighsNothingEvenIfItIsNan) {
  const at::Tensor x = at::tensor({1., INFINITY, kNan}).requires_grad_();
  const at::Tensor outputs = x * 2;
  const at::Tensor loss = WeighLoss(outputs.mean(), 0, outputs);
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_TRUE(x.grad().eq(0).all().item<bool>()) << x.grad();
}

TEST(WeighLossTest, NothingWeighsNothingInFurtherOutputs) {
  const at::Tensor x = at::tensor({1., INFINITY, kNan}).requires_grad_();
  const at::Tensor head = x * 2;
  const at::Tensor outputs = at::ones({2});
  const at::Tensor loss =
      WeighLoss(head.mean(), 0, outputs,
                {{"head", head}, {"kinds", at::ones({2}, at::kLong)}});
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_TRUE(x.grad().eq(0).all().item<bool>()) << x.grad();
}

at::Tensor Scalar(double value) { return at::full({}, value); }

std::string NamesOf(const LossTerms& terms) {
  std::string names;
  for (const auto& each : terms.terms()) names += each.name;
  return names;
}

TEST(LossTermsTest, CollectInOrder) {
  LossTerms terms;
  {
    const LossTerms::Scope scope(&terms);
    AddAuxiliaryLoss("b", Scalar(1));
    AddAuxiliaryLoss("a", at::ones({1}));
    AddAuxiliaryLoss("b", Scalar(3));
  }
  ASSERT_EQ(NamesOf(terms), "bab");
  EXPECT_EQ(terms.terms()[2].loss.item<double>(), 3);
}

TEST(LossTermsTest, SumsAreDetached) {
  LossTerms terms;
  const LossTerms::Scope scope(&terms);
  AddSum("tokens", at::ones({1}).requires_grad_());
  ASSERT_EQ(NamesOf(terms), "tokens");
  EXPECT_TRUE(terms.terms()[0].is_sum);
  EXPECT_FALSE(terms.terms()[0].loss.requires_grad());
  EXPECT_THROW(AddSum("", Scalar(1)), c10::ValueError);
  EXPECT_THROW(AddSum("pair", at::ones({2})), c10::ValueError);
}

TEST(LossTermsTest, NobodyCollectsOutsideOfAScope) {
  AddAuxiliaryLoss("a", Scalar(1));
  LossTerms terms;
  {
    const LossTerms::Scope scope(&terms);
    std::thread([] {
      AddAuxiliaryLoss("of another thread", Scalar(1));
    }).join();
  }
  AddAuxiliaryLoss("a", Scalar(1));
  EXPECT_EQ(NamesOf(terms), "");
}

TEST(LossTermsTest, TheInnermostScopeCollects) {
  LossTerms outer, inner;
  const LossTerms::Scope of_outer(&outer);
  AddAuxiliaryLoss("1", Scalar(1));
  {
    const LossTerms::Scope of_inner(&inner);
    AddAuxiliaryLoss("2", Scalar(1));
    const LossTerms::Scope nobody(nullptr);
    AddAuxiliaryLoss("3", Scalar(1));
  }
  AddAuxiliaryLoss("4", Scalar(1));
  EXPECT_EQ(NamesOf(outer), "14");
  EXPECT_EQ(NamesOf(inner), "2");
}

TEST(LossTermsTest, RefusesWhatIsNoScalarAndHasNoName) {
  EXPECT_ANY_THROW(AddAuxiliaryLoss("a", at::ones({2})));
  EXPECT_ANY_THROW(AddAuxiliaryLoss("a", at::Tensor()));
  EXPECT_ANY_THROW(AddAuxiliaryLoss("", Scalar(1)));
}

class DeferredScoreTest : public DeviceTypeTest {};

at::Tensor Sums(std::initializer_list<double> values) {
  return at::tensor(at::ArrayRef<double>(values), at::kDouble).to(TestDevice());
}

TEST_P(DeferredScoreTest, SumsAreAddedToWhatIsKnown) {
  const auto scores = ReadScores({{{1, 2, 3}},
                                  {{0, 0, 5}, Sums({2.5, 4})},
                                  {{0, 1, 1}, Sums({0.25, 2, 3})}});
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_EQ(scores[0].loss_sum, 1);
  EXPECT_EQ(scores[0].count, 3);
  EXPECT_EQ(scores[1].loss_sum, 2.5);
  EXPECT_EQ(scores[1].correct, 4);
  EXPECT_EQ(scores[1].count, 5);
  EXPECT_EQ(scores[2].correct, 3);
  EXPECT_EQ(scores[2].count, 4);
}

TEST_P(DeferredScoreTest, WithoutPredictionsTheSumIsZero) {
  const auto scores = ReadScores({{{}, Sums({std::nan(""), 0, 0})}});
  EXPECT_EQ(scores.front().loss_sum, 0);
}

TEST_P(DeferredScoreTest, NothingIsDeferredThatIsOnTheHost) {
  const DeferredScore score = DeferScore({0, 0, 5}, Sums({2.5, 4}));
  EXPECT_EQ(score.sums.defined(), !TestDevice().is_cpu());
  EXPECT_EQ(score.known.loss_sum, TestDevice().is_cpu() ? 2.5 : 0);
  EXPECT_EQ(ReadScores({score}).front().loss_sum, 2.5);
}

TEST_P(DeferredScoreTest, SumsHaveAForm) {
  EXPECT_THROW(DeferScore({}, Sums({1})), c10::Error);
  EXPECT_THROW(DeferScore({}, at::ones({2})), c10::Error);
  EXPECT_THROW(DeferScore({}, Sums({1, 2}).view({1, 2})), c10::Error);
}

TANDEM_ON_DEVICE_TYPES(DeferredScoreTest);

}  // namespace
}  // namespace tandem::loss_test
