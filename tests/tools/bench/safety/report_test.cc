#include "tools/bench/safety/report.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::report_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(SafetyReportTest, AShareIsOfAllStepsOfTheRound) {
  EXPECT_THAT(Shares(Result()), ElementsAre(1, 2, 0.25));
}

TEST(SafetyReportTest, ATableHasMediansAndTheRange) {
  EXPECT_THAT(SafetyTable({Result()}),
              HasSubstr("mlp     10.000  --check  0.500        10  1.00  "
                        "0.25 to 2.00"));
}

TEST(SafetyReportTest, FiguresForPrograms) {
  const nlohmann::json figures = SafetyJson({Result()});
  EXPECT_EQ(figures["costs"][0], (nlohmann::json{{"model", "mlp"},
                                                 {"means", "--check"},
                                                 {"step_ms", 10.0},
                                                 {"cost_ms", 0.5},
                                                 {"every", 10},
                                                 {"percent", 1.0},
                                                 {"percent_min", 0.25},
                                                 {"percent_max", 2.0}}));
}

}  // namespace
}  // namespace tandem::report_test
