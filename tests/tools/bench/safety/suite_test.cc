#include "tools/bench/safety/suite.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::suite_test {
namespace {

using ::testing::ElementsAre;

// Of 1 %, 2 % and a quarter of a percent of the steps' time.
SafetyResult Result() {
  SafetyResult result;
  result.model = "mlp";
  result.means = "--check";
  result.every = 10;
  result.plain_ms = {5, 10, 20};
  result.cost_ms = {0.5, 2, 0.5};
  return result;
}

TEST(SafetyTablesTest, AShareIsOfAllStepsOfTheRound) {
  EXPECT_THAT(Shares(Result()), ElementsAre(1, 2, 0.25));
}

TEST(SafetyTablesTest, HaveMediansAndTheRange) {
  const nlohmann::json figures = TablesJson(SafetyTables({Result()}));
  EXPECT_EQ(figures["costs"][0], (nlohmann::json{{"model", "mlp"},
                                                 {"means", "--check"},
                                                 {"step_ms", 10.0},
                                                 {"cost_ms", 0.5},
                                                 {"every", 10},
                                                 {"percent", 1.0},
                                                 {"percent_min", 0.25},
                                                 {"percent_max", 2.0}}));
}

TEST(RunSafetySuiteTest, RefusesAJobWithoutACheckpoint) {
  BenchFlags flags;
  flags.steps = 100;
  EXPECT_EQ(RunSafetySuite(flags, "").status(),
            absl::InvalidArgumentError("--steps=100: expected at least 101"));
  flags.ranks = 1;
  EXPECT_EQ(RunSafetySuite(flags, "").status(),
            absl::InvalidArgumentError("--ranks=1: expected at least 2"));
}

}  // namespace
}  // namespace tandem::suite_test
