#include "tools/trainer/evaluation/history.h"

#include <cmath>
#include <limits>
#include <string>

#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::history_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

EvaluationHistory HistoryBy(BestBy by) {
  EvaluationHistory history(by);
  history.Add({10, /*loss=*/2.0, /*accuracy=*/0.5});
  history.Add({20, 1.5, 0.75});
  history.Add({30, 1.75, 0.8});
  return history;
}

TEST(EvaluationHistoryTest, IsEmptyAtFirst) {
  const EvaluationHistory history;
  EXPECT_EQ(history.best(), nullptr);
  EXPECT_FALSE(history.last_is_best());
  EXPECT_EQ(history.count_since_best(), 0);
  EXPECT_EQ(history.last_step(), 0);
  EXPECT_EQ(history.ToText(), "");
}

TEST(EvaluationHistoryTest, TheBestHasTheLeastLossOrTheGreatestAccuracy) {
  const EvaluationHistory by_loss = HistoryBy(BestBy::kLoss);
  EXPECT_EQ(by_loss.best()->step, 20);
  EXPECT_FALSE(by_loss.last_is_best());
  EXPECT_EQ(by_loss.count_since_best(), 1);
  const EvaluationHistory by_accuracy = HistoryBy(BestBy::kAccuracy);
  EXPECT_EQ(by_accuracy.best()->step, 30);
  EXPECT_TRUE(by_accuracy.last_is_best());
  EXPECT_EQ(by_accuracy.count_since_best(), 0);
}

TEST(EvaluationHistoryTest, AnEqualOneIsNoBetter) {
  EvaluationHistory history = HistoryBy(BestBy::kLoss);
  history.Add({40, 1.5, 0.9});
  EXPECT_EQ(history.best()->step, 20);
  EXPECT_EQ(history.count_since_best(), 2);
}

TEST(EvaluationHistoryTest, AValueThatIsNotFiniteIsNeverTheBest) {
  EvaluationHistory history;
  history.Add({1, kNan, 0.5});
  EXPECT_EQ(history.best(), nullptr);
  EXPECT_EQ(history.count_since_best(), 1);
  history.Add({2, 7.0, 0.5});
  EXPECT_TRUE(history.last_is_best());
  history.Add({3, -std::numeric_limits<double>::infinity(), 0.5});
  EXPECT_EQ(history.best()->step, 2);
}

TEST(EvaluationHistoryTest, ASecondOneOfAStepTakesTheFirstOnesPlace) {
  EvaluationHistory history = HistoryBy(BestBy::kLoss);
  history.Add({20, 3.0, 0.1});
  EXPECT_EQ(history.last_step(), 20);
  EXPECT_EQ(history.best()->step, 10);
  history.DropAfter(19);
  EXPECT_EQ(history.last_step(), 10);
  history.DropAfter(0);
  EXPECT_EQ(history.best(), nullptr);
}

TEST(EvaluationHistoryTest, ATextHasAllOfIt) {
  EvaluationHistory history = HistoryBy(BestBy::kAccuracy);
  history.Add({40, kNan, 1.0 / 3});
  const std::string text = history.ToText();
  const auto read = EvaluationHistory::FromText(text, BestBy::kAccuracy);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToText(), text);
  EXPECT_EQ(read->best()->step, 30);
  EXPECT_EQ(read->best()->accuracy, 0.8);
  EXPECT_EQ(read->last_step(), 40);
}

TEST(EvaluationHistoryTest, ATextOfAnotherMakerIsRefusedByItsLine) {
  const std::string good = HistoryBy(BestBy::kLoss).ToText();
  for (const std::string bad :
       {"{", "[]", "null", "{\"step\":1}", "{\"step\":\"1\",\"loss\":1}",
        "{\"step\":30,\"loss\":1,\"accuracy\":1}",
        "{\"step\":-1,\"loss\":1,\"accuracy\":1}",
        "{\"step\":99,\"loss\":\"x\",\"accuracy\":1}",
        "{\"step\":99.5,\"loss\":1,\"accuracy\":1}", "\xff"}) {
    const auto read =
        EvaluationHistory::FromText(good + bad + "\n", BestBy::kLoss);
    EXPECT_THAT(read.status(), Says("line 4: expected ")) << bad;
  }
}

}  // namespace
}  // namespace tandem::history_test
