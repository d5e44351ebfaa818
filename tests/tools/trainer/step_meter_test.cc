#include "tools/trainer/step_meter.h"

#include "gtest/gtest.h"

namespace tandem::step_meter_test {
namespace {

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

TEST(StepMeterTest, MedianIsOfAllSteps) {
  StepMeter meter;
  for (double seconds : {0.004, 0.001, 0.1}) {
    meter.Add(Score(), 1, StepMeter::Duration(seconds));
  }
  EXPECT_FLOAT_EQ(meter.median_step_ms(), 4);
  meter.Add(Score(), 1, StepMeter::Duration(0.002));
  EXPECT_FLOAT_EQ(meter.median_step_ms(), 3);
}

}  // namespace
}  // namespace tandem::step_meter_test
