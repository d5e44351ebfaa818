#include "core/loss/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

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
      ArgumentsOf(at::ones({2}), {{"head", at::ones({3})}}, targets);
  EXPECT_FALSE(arguments.targets.defined());
  EXPECT_EQ(loss(arguments).loss.item<double>(), 9);
  EXPECT_THROW(ArgumentsOf(at::ones({2}), {}, {}), c10::Error);
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

}  // namespace
}  // namespace tandem::loss_test
