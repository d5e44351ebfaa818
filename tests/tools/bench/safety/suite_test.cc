#include "tools/bench/safety/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/testing/statuses.h"

namespace tandem::safety_suite_test {
namespace {

using testing::ContainsRegex;
using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::SizeIs;
using testing::StartsWith;

SafetyBench Small(std::vector<std::string> models) {
  SafetyBench bench;
  bench.models = std::move(models);
  bench.steps = 5;
  bench.save_every = 2;
  bench.rounds = 2;
  bench.folder = std::string(std::getenv("TEST_TMPDIR")) + "/safety";
  std::filesystem::create_directories(bench.folder);
  return bench;
}

TEST(MeasureSafetyTest, EachMeansHasACostInEachRound) {
  testing::internal::CaptureStderr();
  const auto results = MeasureSafety(Small({"mlp_small"}));
  const std::string progress = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(progress, StartsWith("jobs: 0% (0/26): mlp_small, nothing\n"
                                   "jobs: 3% (1/26), about "));
  EXPECT_THAT(progress,
              ContainsRegex("jobs: 96% \\(25/26\\), about [0-9]+ s left: "
                            "mlp_small, --check_finite\n$"));
  ASSERT_THAT(*results, SizeIs(8));
  EXPECT_EQ((*results)[0].means, "nothing, once more");
  EXPECT_EQ((*results)[4].means, "metrics, TensorBoard, Prometheus, report");
  EXPECT_EQ((*results)[4].every, 25);
  EXPECT_EQ((*results)[7].means, "--check_finite");
  for (const SafetyResult& each : *results) {
    EXPECT_THAT(each.plain_ms, SizeIs(2)) << each.means;
    EXPECT_THAT(each.plain_ms, Each(Gt(0))) << each.means;
    EXPECT_THAT(each.cost_ms, SizeIs(2)) << each.means;
    // Times of a save, and of the copy that one makes: no difference of two
    // times.
    if (each.means.find("save") != std::string::npos) {
      EXPECT_EQ(each.every, 100) << each.means;
      EXPECT_THAT(each.cost_ms, Each(Gt(0))) << each.means;
    }
  }
}

TEST(MeasureSafetyTest, AJobThatFailsIsAnError) {
  SafetyBench bench = Small({"mlp_small"});
  bench.ranks = 0;
  const absl::Status status = MeasureSafety(bench).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "exit code"));
}

TEST(MeasureSafetyTest, AnUnknownModelIsRefusedBeforeAnyIsMeasured) {
  testing::internal::CaptureStderr();
  const absl::Status status =
      MeasureSafety(Small({"mlp_small", "no"})).status();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

// Costs of 1 %, 2 % and a quarter of a percent of the steps' time.
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

TEST(FlightCostTest, AnEntryTakesSomeTimeOnOneThreadAndOnSeveral) {
  for (const int threads : {1, 3}) {
    EXPECT_GT(FlightEntryNanoseconds(threads), 0) << threads;
  }
}

}  // namespace
}  // namespace tandem::safety_suite_test
