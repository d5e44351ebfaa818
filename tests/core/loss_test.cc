#include "core/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
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

}  // namespace
}  // namespace tandem
