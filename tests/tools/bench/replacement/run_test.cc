#include "tools/bench/replacement/run.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::run_test {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
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
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("replacement 1 of 1"));
  bench.model = "vgg";
  EXPECT_TRUE(absl::IsNotFound(MeasureReplacement(bench).status()));
}

}  // namespace
}  // namespace tandem::run_test
