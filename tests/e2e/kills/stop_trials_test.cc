// The first of the trials that //tests/e2e/kills:stop_trials runs: each manner,
// with each signal.

#include <iostream>

#include "gtest/gtest.h"
#include "tests/e2e/kills/stop_trial.h"

namespace tandem {
namespace {

constexpr int kSignals = 4;

TEST(StopTrialsTest, WhoeverIsSignalledTheJobEndsWithACheckpoint) {
  const auto cells = static_cast<int>(StopManners().size()) * kSignals;
  for (const StopTrial& trial : MakeStopTrials(cells, /*seed=*/1)) {
    EXPECT_EQ(RunStopTrial(trial), "") << Describe(trial);
  }
  std::cout << cells << " cells\n";
  EXPECT_EQ(cells, 32);
}

}  // namespace
}  // namespace tandem
