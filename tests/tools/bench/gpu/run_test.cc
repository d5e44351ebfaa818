// tandem's side, without peers, on what any machine has.

#include "tools/bench/gpu/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tools/bench/gpu/cases.h"

namespace tandem::run_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::SizeIs;

class GpuRunTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    options_.device = GetParam();
    options_.rounds = 2;
    options_.steps = 2;
    options_.folder = testing::TempDir() + "/" + GetParam();
    std::filesystem::create_directories(options_.folder);
    options_.python = absl::NotFoundError("no Python here");
  }

  ComparisonOptions options_;
};

TEST_P(GpuRunTest, EveryRoundIsTimedAndMemoryIsCounted) {
  const std::vector<Case> cases = GpuCases({/*batch_size=*/4, 32});
  for (const char* name : {"mlp_small", "resnet18"}) {
    const auto bench = CasesNamed(cases, {name});
    ASSERT_TRUE(bench.ok()) << bench.status();
    options_.folder += name;
    std::filesystem::create_directories(options_.folder);
    const auto result = RunGpuCase(bench->front(), {{}, {}}, options_);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->ours.failure, "");
    EXPECT_THAT(result->ours.step_ms, SizeIs(2));
    EXPECT_THAT(result->ours.step_ms, Each(Gt(0)));
    EXPECT_GT(result->ours.peak_mib, 0);
    EXPECT_THAT(result->peers, SizeIs(0));
  }
}

TEST_P(GpuRunTest, APeerThatIsNamedMustRun) {
  const Case bench = GpuCases({/*batch_size=*/4}).back();
  EXPECT_EQ(RunGpuCase(bench, {{"eager"}, {}}, options_).status(),
            absl::NotFoundError("no Python here"));
}

INSTANTIATE_TEST_SUITE_P(Devices, GpuRunTest, testing::Values("cpu", "sim"));

TEST(UsualGpuPeers, AreThoseThatTheDeviceCan) {
  EXPECT_THAT(UsualGpuPeers("cpu").names, ElementsAre("eager", "compile"));
  EXPECT_THAT(
      UsualGpuPeers("cuda").names,
      ElementsAre("eager", "compile", "reduce_overhead", "cuda_graphs"));
  EXPECT_THAT(UsualGpuPeers("cuda").may_fail,
              ElementsAre("compile", "reduce_overhead", "cuda_graphs"));
}

}  // namespace
}  // namespace tandem::run_test
