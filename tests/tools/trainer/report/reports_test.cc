// Reports of steps and evaluations, and what they are made of.

#include "tools/trainer/report/reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "tools/trainer/report/report.h"
#include "tools/trainer/step_meter.h"

namespace tandem::reports_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

Score OneStep(double loss_sum, int64_t correct, int64_t count) {
  Score score;
  score.loss_sum = loss_sum;
  score.correct = correct;
  score.count = count;
  return score;
}

TEST(StepMeterTest, IsZeroBeforeTheFirstStep) {
  StepMeter meter;
  EXPECT_EQ(meter.samples_per_s(), 0);
  EXPECT_EQ(meter.step_ms(), 0);
  EXPECT_EQ(meter.total_samples_per_s(), 0);
  EXPECT_EQ(meter.mean_step_ms(), 0);
  EXPECT_EQ(meter.median_step_ms(), 0);
  EXPECT_EQ(meter.score().loss(), 0);
}

TEST(StepMeterTest, SumsAWindowAndGoesOnAfterAReset) {
  StepMeter meter;
  meter.Add(OneStep(8, 1, 4), 4, StepMeter::Duration(0.5));
  meter.Add(OneStep(4, 3, 4), 4, StepMeter::Duration(1.5));
  EXPECT_EQ(meter.score().loss(), 1.5);
  EXPECT_EQ(meter.score().accuracy(), 0.5);
  EXPECT_EQ(meter.samples_per_s(), 4);
  EXPECT_EQ(meter.step_ms(), 1000);
  EXPECT_EQ(meter.steps_since_reset(), 2);
  meter.Reset();
  EXPECT_EQ(meter.steps_since_reset(), 0);
  meter.Add(OneStep(2, 2, 2), 2, StepMeter::Duration(2));
  EXPECT_EQ(meter.score().loss(), 1);
  EXPECT_EQ(meter.samples_per_s(), 1);
  EXPECT_EQ(meter.total_samples_per_s(), 2.5);
}

TEST(StepMeterTest, AuxiliaryLossesAreMeansOverSamples) {
  StepMeter meter;
  EXPECT_TRUE(meter.auxiliary_losses().empty());
  meter.Add(Score(), 3, StepMeter::Duration(1), {{"a", 2}, {"b", 1}});
  meter.Add(Score(), 1, StepMeter::Duration(1), {{"a", 6}, {"b", 1}});
  EXPECT_EQ(meter.auxiliary_losses(), (StepMeter::Losses{{"a", 3}, {"b", 1}}));
  meter.Reset();
  EXPECT_TRUE(meter.auxiliary_losses().empty());
}

// Nothing is known of one that overflowed.
TEST(StepMeterTest, AStepWithoutALossDoesNotDiluteTheMean) {
  StepMeter meter;
  meter.Add(Score(), 3, StepMeter::Duration(1), {{"a", 2}});
  meter.Add(Score(), 3, StepMeter::Duration(1));
  EXPECT_EQ(meter.auxiliary_losses(), (StepMeter::Losses{{"a", 2}}));
}

TEST(StepMeterTest, NamedSumsAddUp) {
  StepMeter meter;
  meter.Add(Score(), 3, StepMeter::Duration(1), {}, {{"tokens", 20}});
  meter.Add(Score(), 1, StepMeter::Duration(1), {}, {{"tokens", 6}});
  EXPECT_EQ(meter.sums(), (StepMeter::Losses{{"tokens", 26}}));
  meter.Reset();
  EXPECT_TRUE(meter.sums().empty());
}

TEST(StepMeterTest, MeanAndMedianAreOfAllSteps) {
  StepMeter meter;
  for (double seconds : {0.004, 0.001, 0.1}) {
    meter.Add(Score(), 1, StepMeter::Duration(seconds));
    meter.Reset();
  }
  EXPECT_DOUBLE_EQ(meter.mean_step_ms(), 35);
  EXPECT_FLOAT_EQ(meter.median_step_ms(), 4);
  meter.Add(Score(), 1, StepMeter::Duration(0.002));
  EXPECT_FLOAT_EQ(meter.median_step_ms(), 3);
}

StepReport ReportOfStep(int64_t step) {
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
  EXPECT_EQ(ReportLine(ReportOfStep(7), 100),
            "epoch 1  step   7/100  loss 1.5000  accuracy 25.00 %  lr 0.05  "
            "100 samples/s  2.5 ms  1:02:03 left  80 MiB");
}

TEST(StepReportTest, NormFlopsAndUtilizationStandWithWhatTheyBelongTo) {
  StepReport report = ReportOfStep(7);
  report.gradient_norm = 0.123456;
  report.flops_per_s = 1.5e12;
  report.utilization = 0.375;
  EXPECT_THAT(ReportLine(report, 9),
              HasSubstr("  lr 0.05  gradient norm 0.1235  100 samples/s  1.5 "
                        "TFLOP/s  MFU 37.5 %  2.5 ms  "));
  const auto fields = ReportFields(report);
  EXPECT_EQ(fields["gradient_norm"], 0.123456);
  EXPECT_EQ(fields["flops_per_s"], 1.5e12);
  EXPECT_EQ(fields["mfu"], 0.375);
}

TEST(StepReportTest, FlopsHaveTheirPrefix) {
  StepReport report = ReportOfStep(7);
  const std::pair<double, const char*> cases[] = {
      {999, "  999 FLOP/s"},      {1000, "  1 kFLOP/s"},
      {2.34e8, "  234 MFLOP/s"},  {2e9, "  2 GFLOP/s"},
      {4.56e17, "  456 PFLOP/s"}, {7e21, "  7e+03 EFLOP/s"},
  };
  for (const auto& [flops, text] : cases) {
    report.flops_per_s = flops;
    EXPECT_THAT(ReportLine(report, 9), HasSubstr(text));
  }
}

TEST(StepReportTest, WhatIsNotKnownIsLeftOut) {
  const auto fields = ReportFields(ReportOfStep(7));
  EXPECT_EQ(fields["samples"], 112);
  for (const char* name :
       {"gradient_norm", "flops_per_s", "mfu", "tokens", "tokens_per_s",
        "perplexity", "auxiliary_losses", "loss_scale"}) {
    EXPECT_FALSE(fields.contains(name)) << name;
  }
  EXPECT_THAT(ReportLine(ReportOfStep(7), 9), Not(HasSubstr("norm")));
}

TEST(StepReportTest, OfTextThereAreTokensAndThePerplexity) {
  StepReport report = ReportOfStep(7);
  report.tokens = 112 * 64;
  report.tokens_per_s = 6400;
  report.score.loss_sum = 0;
  report.auxiliary_losses = {{"z", 0.5}};
  const std::string line = ReportLine(report, 9);
  EXPECT_THAT(line, HasSubstr("loss 0.0000  z 0.5  perplexity 1  accuracy"));
  EXPECT_THAT(line, HasSubstr("6400 tokens/s"));
  const auto fields = ReportFields(report);
  EXPECT_EQ(fields["samples"], 112);
  EXPECT_EQ(fields["tokens"], 7168);
  EXPECT_EQ(fields["tokens_per_s"], 6400);
  EXPECT_EQ(fields["perplexity"], 1);
  EXPECT_EQ(fields["auxiliary_losses"]["z"], 0.5);
  // A loss of smoothed labels says nothing of the text.
  report.is_smoothed = true;
  EXPECT_THAT(ReportLine(report, 9), Not(HasSubstr("perplexity")));
  EXPECT_FALSE(ReportFields(report).contains("perplexity"));
  EXPECT_EQ(ReportFields(report)["tokens"], 7168);
}

EvaluationReport EvaluationOfEpoch() {
  EvaluationReport report;
  report.epoch = 3;
  report.score = {/*loss_sum=*/6, /*correct=*/1, /*count=*/4};
  return report;
}

TEST(EvaluationReportTest, ALineSaysWhatIsKnown) {
  EXPECT_EQ(ReportLine(EvaluationOfEpoch()),
            "epoch 3  test: loss 1.5000  accuracy 25.00 %  (4 predictions)");
  EXPECT_EQ(ReportFields(EvaluationOfEpoch()).count("sums"), 0u);
  EvaluationReport alone = EvaluationOfEpoch();
  alone.is_alone = true;
  EXPECT_EQ(ReportLine(alone),
            "test: loss 1.5000  accuracy 25.00 %  (4 predictions)");
}

TEST(EvaluationReportTest, TextHasAPerplexity) {
  EvaluationReport report = EvaluationOfEpoch();
  EXPECT_EQ(ReportFields(report).count("perplexity"), 0u);
  report.is_text = true;
  EXPECT_DOUBLE_EQ(ReportFields(report)["perplexity"].get<double>(),
                   std::exp(1.5));
  EXPECT_EQ(ReportLine(report),
            "epoch 3  test: loss 1.5000  perplexity 4.482  accuracy 25.00 %  "
            "(4 predictions)");
}

TEST(EvaluationReportTest, ALossThatIsNoNumberHasNoSign) {
  EvaluationReport report = EvaluationOfEpoch();
  report.is_text = true;
  report.score.loss_sum =
      std::copysign(std::numeric_limits<double>::quiet_NaN(), -1);
  EXPECT_EQ(ReportLine(report),
            "epoch 3  test: loss nan  perplexity nan  accuracy 25.00 %  (4 "
            "predictions)");
}

TEST(EvaluationReportTest, NamedSumsStandBehindTheLoss) {
  EvaluationReport report = EvaluationOfEpoch();
  report.sums = {{"active", 1234}, {"tokens", 4096.5}};
  EXPECT_EQ(ReportLine(report),
            "epoch 3  test: loss 1.5000  active 1234  tokens 4096.5  accuracy "
            "25.00 %  (4 predictions)");
  EXPECT_EQ(ReportFields(report)["sums"]["tokens"], 4096.5);
  EXPECT_EQ(ReportFields(report)["count"], 4);
}

TEST(EvaluationReportTest, OneWithinAnEpochIsOfItsStep) {
  EvaluationReport report = EvaluationOfEpoch();
  report.within_epoch = true;
  report.step = 250;
  report.samples = 16000;
  report.is_best = true;
  EXPECT_EQ(ReportLine(report),
            "step 250  test: loss 1.5000  accuracy 25.00 %  (4 predictions)  "
            "the best so far");
  const auto fields = ReportFields(report);
  EXPECT_EQ(fields["step"], 250);
  EXPECT_EQ(fields["samples"], 16000);
  EXPECT_EQ(fields["is_best"], true);
  EXPECT_EQ(fields.count("tokens"), 0u);
  EXPECT_EQ(fields.count("bits_per_byte"), 0u);
}

TEST(EvaluationReportTest, ATextWhoseBytesAreKnownHasBitsAByte) {
  EvaluationReport report = EvaluationOfEpoch();
  report.is_text = true;
  report.bits_per_byte = 1.23456;
  report.tokens = 4096;
  EXPECT_EQ(ReportLine(report),
            "epoch 3  test: loss 1.5000  perplexity 4.482  1.2346 bits a byte  "
            "accuracy 25.00 %  (4 predictions)");
  EXPECT_EQ(ReportFields(report)["bits_per_byte"], 1.23456);
  EXPECT_EQ(ReportFields(report)["tokens"], 4096);
}

TEST(SampleReportTest, HasTheTextAndItsStep) {
  const SampleReport sample = {500, "Once upon\na time"};
  EXPECT_EQ(
      ReportLines(sample),
      (std::vector<std::string>{"step 500  sample:", "Once upon\na time"}));
  EXPECT_EQ(ReportFields(sample)["step"], 500);
  EXPECT_EQ(ReportFields(sample)["text"], "Once upon\na time");
}

TEST(RankTimesTest, AreOfTheSlowestAndTheMedianOfAll) {
  std::vector<RankReport> ranks;
  for (int rank = 0; rank < 19; ++rank) {
    // 1 to 19 ms, but for a rank that came too late for any step (of 17 ms).
    ranks.push_back({rank, {}, rank == 5 ? 0.0 : 1.0 + rank * 7 % 19});
  }
  const RankTimes times = SlowestRanks(ranks);
  EXPECT_EQ(times.median_ms, 9.5);
  ASSERT_EQ(times.slowest.size(), kMostSlowestRanks);
  EXPECT_EQ(times.slowest[0].step_ms, 19);
  EXPECT_EQ(times.slowest[0].rank, 8);
  EXPECT_EQ(times.slowest[1].step_ms, 18);
  EXPECT_EQ(times.slowest[2].step_ms, 16);
  EXPECT_TRUE(SlowestRanks({}).slowest.empty());
}

TEST(RankTimesTest, StandInTheSummaryOfSeveralRanks) {
  SummaryReport summary;
  EXPECT_EQ(ReportFields(summary).count("slowest_ranks"), 0u);
  summary.ranks = SlowestRanks({{0, {}, 62}, {1, {}, 66}, {2, {}, 64}});
  const auto fields = ReportFields(summary);
  EXPECT_EQ(fields["rank_step_ms_median"], 64);
  EXPECT_EQ(fields["slowest_ranks"].dump(), R"({"1":66.0,"2":64.0,"0":62.0})");
}

TEST(SummaryReportTest, SaysTheBestEvaluationAndWhereItIs) {
  SummaryReport summary;
  EXPECT_EQ(ReportFields(summary).count("best"), 0u);
  summary.best = BestReport{500, 1.25, 0.5, "runs/a/best"};
  EXPECT_THAT(ReportLines(summary),
              testing::Contains("  best evaluation    after step 500: accuracy "
                                "50.00 %, loss 1.2500, runs/a/best"));
  EXPECT_EQ(ReportFields(summary)["best"]["step"], 500);
  EXPECT_EQ(ReportFields(summary)["best"]["checkpoint"], "runs/a/best");
}

}  // namespace
}  // namespace tandem::reports_test
