#include "tools/bench/replacement/suite.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::replacement_suite_test {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::SizeIs;

ReplacementBench Small() {
  ReplacementBench bench;
  bench.ranks = 2;
  bench.steps = 6;
  bench.dies_at = 3;
  bench.save_every = 2;
  bench.rounds = 1;
  bench.model = "mlp_small";
  bench.folder = std::string(std::getenv("TEST_TMPDIR")) + "/jobs";
  std::filesystem::create_directories(bench.folder);
  return bench;
}

TEST(MeasureReplacementTest, EachWayIsTimed) {
  const auto result = MeasureReplacement(Small());
  ASSERT_TRUE(result.ok()) << result.status();
  for (const auto* each :
       {&result->undisturbed, &result->replaced, &result->restarted}) {
    EXPECT_THAT(*each, SizeIs(1));
    EXPECT_THAT(*each, Each(Gt(0)));
  }
}

TEST(MeasureReplacementTest, ARankThatDoesNotDieIsAnError) {
  ReplacementBench bench = Small();
  bench.dies_at = 7;
  const absl::Status status = MeasureReplacement(bench).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInternal, "replacement 1 of 1"));
  bench.model = "vgg";
  EXPECT_TRUE(absl::IsNotFound(MeasureReplacement(bench).status()));
}

TEST(ReplacementTablesTest, SayWhatTheDeathCost) {
  const ReplacementResult times = {{10, 12, 11}, {12, 11.5, 14}, {15, 16, 21}};
  const nlohmann::json figures =
      TablesJson(ReplacementTables({{"mlp", times}}));
  const auto way = [](const char* name, double median, double lost) {
    return nlohmann::json{
        {"name", "mlp"}, {"way", name}, {"median_s", median}, {"lost_s", lost}};
  };
  ASSERT_EQ(figures["ways"].size(), 3u);
  EXPECT_EQ(figures["ways"][0], way("nobody dies", 11, 0));
  EXPECT_EQ(figures["ways"][1], way("--replace_replicas", 12, 1));
  EXPECT_EQ(figures["ways"][2], way("--max_restarts", 16, 5));
  ASSERT_EQ(figures["rounds"].size(), 3u);
  EXPECT_EQ(figures["rounds"][2], (nlohmann::json{{"name", "mlp"},
                                                  {"undisturbed_s", 11.0},
                                                  {"replaced_s", 14.0},
                                                  {"restarted_s", 21.0}}));
}

TEST(RunReplacementSuiteTest, RefusesWhatCannotBe) {
  BenchFlags flags;
  flags.steps = 149;
  EXPECT_EQ(RunReplacementSuite(flags, "").status(),
            absl::InvalidArgumentError("--steps=149: expected at least 150"));
  flags.steps = 150;
  flags.cases = {"vgg"};
  EXPECT_TRUE(absl::IsNotFound(RunReplacementSuite(flags, "").status()));
}

}  // namespace
}  // namespace tandem::replacement_suite_test
