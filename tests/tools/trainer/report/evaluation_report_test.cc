#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tools/trainer/report/reports.h"

namespace tandem::evaluation_report_test {
namespace {

EvaluationReport Report() {
  EvaluationReport report;
  report.epoch = 3;
  report.score = {/*loss_sum=*/6, /*correct=*/1, /*count=*/4};
  return report;
}

TEST(EvaluationReportTest, ALineSaysWhatIsKnown) {
  EXPECT_EQ(LineOf(Report()),
            "epoch 3  test: loss 1.5000  accuracy 25.00 %  (4 predictions)");
  EXPECT_EQ(FieldsOf(Report()).count("sums"), 0u);
  EvaluationReport alone = Report();
  alone.is_alone = true;
  EXPECT_EQ(LineOf(alone),
            "test: loss 1.5000  accuracy 25.00 %  (4 predictions)");
}

TEST(EvaluationReportTest, TextHasAPerplexity) {
  EvaluationReport report = Report();
  EXPECT_EQ(FieldsOf(report).count("perplexity"), 0u);
  report.is_text = true;
  EXPECT_DOUBLE_EQ(FieldsOf(report)["perplexity"].get<double>(), std::exp(1.5));
  EXPECT_EQ(LineOf(report),
            "epoch 3  test: loss 1.5000  perplexity 4.482  accuracy 25.00 %  "
            "(4 predictions)");
}

TEST(EvaluationReportTest, ALossThatIsNoNumberHasNoSign) {
  EvaluationReport report = Report();
  report.is_text = true;
  report.score.loss_sum =
      std::copysign(std::numeric_limits<double>::quiet_NaN(), -1);
  EXPECT_EQ(LineOf(report),
            "epoch 3  test: loss nan  perplexity nan  accuracy 25.00 %  (4 "
            "predictions)");
}

TEST(EvaluationReportTest, NamedSumsStandBehindTheLoss) {
  EvaluationReport report = Report();
  report.sums = {{"active", 1234}, {"tokens", 4096.5}};
  EXPECT_EQ(LineOf(report),
            "epoch 3  test: loss 1.5000  active 1234  tokens 4096.5  accuracy "
            "25.00 %  (4 predictions)");
  EXPECT_EQ(FieldsOf(report)["sums"]["tokens"], 4096.5);
  EXPECT_EQ(FieldsOf(report)["count"], 4);
}

}  // namespace
}  // namespace tandem::evaluation_report_test
