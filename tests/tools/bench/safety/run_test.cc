#include "tools/bench/safety/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace tandem {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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
  const auto results = MeasureSafety(Small({"mlp_small"}));
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_THAT(*results, SizeIs(7));
  EXPECT_EQ((*results)[0].means, "nothing, once more");
  EXPECT_EQ((*results)[6].means, "--check_finite");
  for (const SafetyResult& each : *results) {
    EXPECT_THAT(each.plain_ms, SizeIs(2)) << each.means;
    EXPECT_THAT(each.plain_ms, Each(Gt(0))) << each.means;
    EXPECT_THAT(each.cost_ms, SizeIs(2)) << each.means;
    // Of a save, and of the copy that one makes: no difference of two times.
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
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("exit code"));
  EXPECT_TRUE(absl::IsNotFound(MeasureSafety(Small({"no"})).status()));
}

}  // namespace
}  // namespace tandem
