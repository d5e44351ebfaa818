// The first of the trials that //tests/e2e/kills:stop_trials runs: each manner,
// with each signal. And jobs that would go on after a rank's death.

#include <csignal>
#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "tests/e2e/kills/stop_trial.h"

namespace tandem::stop_trials_test {
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

TEST(StopTrialsTest, OneRankIsEnoughWhateverItsDeathWouldBe) {
  for (const std::string flag : {"--max_restarts=1", "--replace_replicas=2"}) {
    StopManner manner = {"one rank", false, 1};
    manner.flags = {flag};
    const StopTrial trial = {&manner, SIGTERM, 0.2};
    EXPECT_EQ(RunStopTrial(trial), "") << flag;
  }
}

}  // namespace
}  // namespace tandem::stop_trials_test
