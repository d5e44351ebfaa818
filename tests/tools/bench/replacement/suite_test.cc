#include "tools/bench/replacement/suite.h"

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace tandem::suite_test {
namespace {

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
}  // namespace tandem::suite_test
