// The first of the trials that the commands of //tests/e2e/kills run:
// kill_trials, stop_trials (each manner, with each signal, and jobs that would
// go on after a rank's death) and damage_trials (each damage of each file).

#include <csignal>
#include <iostream>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/e2e/kills/damage_trial.h"
#include "tests/e2e/kills/stop_trial.h"
#include "tests/e2e/kills/trial.h"

namespace tandem::trials_test {
namespace {

constexpr int kTrials = 16;

TEST(KillTrialsTest, EveryJobEndsAsIfNobodyHadDisturbedIt) {
  std::map<std::string, Undisturbed> undisturbed;
  for (const KilledLayout& layout : KilledLayouts()) {
    undisturbed[layout.name] = RunUndisturbed(layout);
    ASSERT_EQ(undisturbed[layout.name].losses.size(), 40u) << layout.name;
  }
  int hit = 0;
  for (const Trial& trial : MakeTrials(kTrials, /*seed=*/1)) {
    const TrialEnd end = RunTrial(trial, undisturbed.at(trial.layout->name));
    std::cout << Describe(trial) << ": " << (end.was_hit ? "hit" : "too late")
              << ", " << end.runs << " run(s), " << end.restarts
              << " restart(s)\n";
    EXPECT_EQ(end.problem, "") << Describe(trial);
    hit += end.was_hit ? 1 : 0;
  }
  std::cout << kTrials << " trials, " << hit << " hit\n";
  // Points are always hit; a moment may be past the end.
  EXPECT_GE(hit, kTrials / 2);
}

constexpr int kSignals = 4;

TEST(StopTrialsTest, WhoeverIsSignalledTheJobEndsWithACheckpoint) {
  const auto cells = static_cast<int>(StopManners().size()) * kSignals;
  for (const StopTrial& trial : MakeStopTrials(cells, /*seed=*/1)) {
    EXPECT_EQ(RunStopTrial(trial), "") << Describe(trial);
  }
  std::cout << cells << " cells\n";
  EXPECT_EQ(cells, 32);
}

TEST(StopTrialsTest, OneRankIsEnoughWhateverItsDeathWouldBe) {
  for (const std::string flag : {"--max_restarts=1", "--replace_replicas=2"}) {
    StopManner manner = {"one rank", false, 1};
    manner.flags = {flag};
    const StopTrial trial = {&manner, SIGTERM, 0.2};
    EXPECT_EQ(RunStopTrial(trial), "") << flag;
  }
}

TEST(DamageTrialsTest, WhateverIsDamagedTheJobGoesOnFromTheCheckpointBefore) {
  const DamagedJob job;
  for (const DamageTrial& trial : MakeDamageTrials(DamageCells(), /*seed=*/1)) {
    EXPECT_EQ(job.Run(trial), "") << Describe(trial);
  }
  std::cout << DamageCells() << " cells\n";
  EXPECT_EQ(DamageCells(), 15);
}

}  // namespace
}  // namespace tandem::trials_test
