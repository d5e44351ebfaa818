#include "core/loss/deferred_score.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/testing/device_types.h"

namespace tandem::deferred_score_test {
namespace {

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
}  // namespace tandem::deferred_score_test
