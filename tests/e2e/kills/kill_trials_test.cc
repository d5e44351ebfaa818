// The first of the trials that //tests/e2e/kills:kill_trials runs.

#include <iostream>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/e2e/kills/trial.h"

namespace tandem::kill_trials_test {
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

}  // namespace
}  // namespace tandem::kill_trials_test
