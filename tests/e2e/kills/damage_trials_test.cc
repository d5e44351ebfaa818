// The first of the trials that //tests/e2e/kills:damage_trials runs: each
// damage of each file.

#include <iostream>

#include "gtest/gtest.h"
#include "tests/e2e/kills/damage_trial.h"

namespace tandem::damage_trials_test {
namespace {

TEST(DamageTrialsTest, WhateverIsDamagedTheJobGoesOnFromTheCheckpointBefore) {
  const DamagedJob job;
  for (const DamageTrial& trial : MakeDamageTrials(DamageCells(), /*seed=*/1)) {
    EXPECT_EQ(job.Run(trial), "") << Describe(trial);
  }
  std::cout << DamageCells() << " cells\n";
  EXPECT_EQ(DamageCells(), 15);
}

}  // namespace
}  // namespace tandem::damage_trials_test
