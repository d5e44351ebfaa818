#include "parallel/step/score_numbers.h"

#include "gtest/gtest.h"

namespace tandem::score_numbers_test {
namespace {

TEST(ScoreNumbersTest, SumsOfNumbersAreSumsOfScores) {
  const Score a = {1.5, 2, 7};
  const Score b = {0.25, 1, 4};
  double first[kScoreNumbers], second[kScoreNumbers];
  ToNumbers(a, first);
  ToNumbers(b, second);
  for (int i = 0; i < kScoreNumbers; ++i) first[i] += second[i];
  Score sum = a;
  sum += b;
  const Score found = ScoreOf(first);
  EXPECT_EQ(found.loss_sum, sum.loss_sum);
  EXPECT_EQ(found.correct, sum.correct);
  EXPECT_EQ(found.count, sum.count);
}

}  // namespace
}  // namespace tandem::score_numbers_test
