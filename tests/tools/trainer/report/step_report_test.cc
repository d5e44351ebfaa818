#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trainer/report/reports.h"

namespace tandem::step_report_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

StepReport OneOf(int64_t step) {
  StepReport report;
  report.epoch = 1;
  report.step = step;
  report.samples = 16 * step;
  report.score = {/*loss_sum=*/6, /*correct=*/1, /*count=*/4};
  report.learning_rate = 0.05;
  report.samples_per_s = 100;
  report.step_ms = 2.5;
  report.left_s = 3723;
  report.rss_mib = 80;
  return report;
}

TEST(StepReportTest, ALineSaysWhatIsKnown) {
  EXPECT_EQ(LineOf(OneOf(7), 100),
            "epoch 1  step   7/100  loss 1.5000  accuracy 25.00 %  lr 0.05  "
            "100 samples/s  2.5 ms  1:02:03 left  80 MiB");
}

TEST(StepReportTest, NormFlopsAndUtilizationStandWithWhatTheyBelongTo) {
  StepReport report = OneOf(7);
  report.gradient_norm = 0.123456;
  report.flops_per_s = 1.5e12;
  report.utilization = 0.375;
  EXPECT_THAT(LineOf(report, 9),
              HasSubstr("  lr 0.05  gradient norm 0.1235  100 samples/s  1.5 "
                        "TFLOP/s  MFU 37.5 %  2.5 ms  "));
  const auto fields = FieldsOf(report);
  EXPECT_EQ(fields["gradient_norm"], 0.123456);
  EXPECT_EQ(fields["flops_per_s"], 1.5e12);
  EXPECT_EQ(fields["mfu"], 0.375);
}

TEST(StepReportTest, FlopsHaveTheirPrefix) {
  StepReport report = OneOf(7);
  const std::pair<double, const char*> cases[] = {
      {999, "  999 FLOP/s"},      {1000, "  1 kFLOP/s"},
      {2.34e8, "  234 MFLOP/s"},  {2e9, "  2 GFLOP/s"},
      {4.56e17, "  456 PFLOP/s"}, {7e21, "  7e+03 EFLOP/s"},
  };
  for (const auto& [flops, text] : cases) {
    report.flops_per_s = flops;
    EXPECT_THAT(LineOf(report, 9), HasSubstr(text));
  }
}

TEST(StepReportTest, WhatIsNotKnownIsLeftOut) {
  const auto fields = FieldsOf(OneOf(7));
  EXPECT_EQ(fields["samples"], 112);
  for (const char* name :
       {"gradient_norm", "flops_per_s", "mfu", "tokens", "tokens_per_s",
        "perplexity", "auxiliary_losses", "loss_scale"}) {
    EXPECT_FALSE(fields.contains(name)) << name;
  }
  EXPECT_THAT(LineOf(OneOf(7), 9), Not(HasSubstr("norm")));
}

TEST(StepReportTest, OfTextThereAreTokensAndThePerplexity) {
  StepReport report = OneOf(7);
  report.tokens = 112 * 64;
  report.tokens_per_s = 6400;
  report.score.loss_sum = 0;
  report.auxiliary_losses = {{"z", 0.5}};
  const std::string line = LineOf(report, 9);
  EXPECT_THAT(line, HasSubstr("loss 0.0000  z 0.5  perplexity 1  accuracy"));
  EXPECT_THAT(line, HasSubstr("6400 tokens/s"));
  const auto fields = FieldsOf(report);
  EXPECT_EQ(fields["samples"], 112);
  EXPECT_EQ(fields["tokens"], 7168);
  EXPECT_EQ(fields["tokens_per_s"], 6400);
  EXPECT_EQ(fields["perplexity"], 1);
  EXPECT_EQ(fields["auxiliary_losses"]["z"], 0.5);
}

}  // namespace
}  // namespace tandem::step_report_test
